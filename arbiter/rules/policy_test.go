package rules

import "testing"

// Each rule has a number of its own, by which messages between programs and the daemon name it, also if the hashes of two names are equal.
// arbiter/rulescope_test.go tests the budget over changes of the configuration.

// TestRulesOfOneHash: two rules whose names have the same hash get different numbers, and the same numbers each time.
func TestRulesOfOneHash(t *testing.T) {
	const one, other = "8yn0iYCKYHlIj4-BwPqk", "GReLUrM4wMqfg9yzV3KQ"
	if (Key{Name: one}).ID() != (Key{Name: other}).ID() {
		t.Fatal("they have not")
	}
	p := Policy{Rules: []Rule{{Key: one, StreamsMax: new(1)}, {Key: other, StreamsMax: new(2)}, {Key: other, StreamsMax: new(3)}}}.InForce(nil)
	for i, want := range []int{1, 2, 2} { // if two rules have the same name, the first one counts
		if got := p.ByID(p.All()[i].ID); got == nil || got.StreamsMax != want {
			t.Errorf("rule %d: found %+v, want the one of %d streams", i, got, want)
		}
	}
}
