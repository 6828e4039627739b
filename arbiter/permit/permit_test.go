package permit_test

import (
	"maps"
	"testing"

	"pgregory.net/rapid"

	"github.com/gpuarb/gpuarb/arbiter/permit"
)

// Slots, claims and exclusive use of a device exclude each other as the rules say. The expected values are cases by hand, and a list on
// which every permit is counted. slots_test.go of package arbiter tests which requests need a permit.

type (
	key  = permit.Key[int, int]
	sets = permit.Sets[int, int, key]
)

var (
	slot  = permit.Kinds{permit.Slot: true}
	claim = permit.Kinds{permit.Slot: true, permit.Claim: true}
	sole  = permit.Kinds{permit.Slot: true, permit.Sole: true}

	capped = permit.Caps{permit.Slot: 2}
	open   = permit.Caps{permit.Claim: 1}
)

func TestFull(t *testing.T) {
	for _, c := range []struct {
		name  string
		there []permit.Kinds // permits of jobs 1, 2 and so on
		asks  permit.Kinds
		job   int
		caps  permit.Caps
		full  bool
	}{
		{"nobody is there", nil, slot, 9, capped, false},
		{"below the cap", []permit.Kinds{slot}, slot, 9, capped, false},
		{"at the cap", []permit.Kinds{slot, slot}, slot, 9, capped, true},
		{"at the cap with one of its own", []permit.Kinds{slot, slot}, slot, 1, capped, true},
		{"no cap", []permit.Kinds{slot, slot, slot}, slot, 9, open, false},
		{"a claim where slots are capped", []permit.Kinds{claim}, claim, 9, capped, false},
		{"a claim where one has it", []permit.Kinds{claim}, claim, 9, open, true},
		{"a slot where one has a claim", []permit.Kinds{claim}, slot, 9, open, false},
		{"a claim beside slots", []permit.Kinds{slot, slot}, claim, 9, open, false},
		{"nothing beside sole use", []permit.Kinds{sole}, slot, 9, open, true},
		{"but what is its own", []permit.Kinds{sole}, slot, 1, open, false},
		{"sole use of an empty device", nil, sole, 9, capped, false},
		{"sole use beside a slot", []permit.Kinds{slot}, sole, 9, capped, true},
		{"sole use beside its own slot", []permit.Kinds{slot}, sole, 1, open, false},
		{"sole use beside sole use", []permit.Kinds{sole}, sole, 9, open, true},
		{"nothing asked for", []permit.Kinds{sole, slot}, permit.Kinds{}, 9, capped, false},
	} {
		var s sets
		for i, kinds := range c.there {
			s.Grant(key{Job: i + 1}, kinds, key{Job: i + 1})
		}
		if got := s.Full(c.job, c.asks, c.caps); got != c.full {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// TestLimits checks for which kinds of permits a waiting request blocks later requests, and how many permits of each kind may exist.
func TestLimits(t *testing.T) {
	for _, c := range []struct {
		name string
		asks permit.Kinds
		caps permit.Caps
		want map[permit.Kind]int
	}{
		{"a slot without a cap waits for the end of sole use", slot, open, map[permit.Kind]int{permit.Sole: permit.None}},
		{"a slot", slot, capped, map[permit.Kind]int{permit.Slot: 2, permit.Sole: permit.None}},
		{"a claim", claim, open, map[permit.Kind]int{permit.Claim: 1, permit.Sole: permit.None}},
		{"a claim where slots are capped", claim, capped, map[permit.Kind]int{permit.Slot: 2, permit.Sole: permit.None}},
		{"sole use", sole, capped, map[permit.Kind]int{permit.Slot: permit.None, permit.Sole: permit.None}},
		{"nothing", permit.Kinds{}, capped, map[permit.Kind]int{}},
	} {
		if got := maps.Collect(c.asks.Limits(c.caps)); !maps.Equal(got, c.want) {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// naive is a list of owners with their permits.
type naive map[one]bool

type one struct {
	kind permit.Kind
	key  key
}

// of returns how many permits of a kind a job has; job 0: all jobs.
func (n naive) of(k permit.Kind, job int) (count int) {
	for o := range n {
		if o.kind == k && (job == 0 || o.key.Job == job) {
			count++
		}
	}
	return count
}

// check compares the sets with the list.
func (n naive) check(t *rapid.T, s *sets) {
	for k := range permit.Count {
		if len(s[k]) != n.of(k, 0) {
			t.Fatalf("kind %d: %v; not %v", k, s[k], n)
		}
		for key, kept := range s[k] {
			if !n[one{k, key}] || kept != key {
				t.Fatalf("kind %d: %v; not %v", k, s[k], n)
			}
		}
		for job := 1; job < 5; job++ {
			if got := s.HeldByOthers(k, job); got != (n.of(k, 0) > n.of(k, job)) {
				t.Fatalf("kind %d, job %d: others %v: %v", k, job, got, n)
			}
		}
	}
}

// full reports whether a job cannot get the permits that it asks for, like Sets.Full. It spells out each rule of the package, and counts all
// permits each time.
func (n naive) full(job int, asks permit.Kinds, caps permit.Caps) bool {
	others := func(k permit.Kind) bool { return n.of(k, 0) > n.of(k, job) }
	switch {
	case asks[permit.Slot] && others(permit.Sole):
		return true
	case asks[permit.Sole] && others(permit.Slot):
		return true
	case asks[permit.Slot] && !asks[permit.Sole] && caps[permit.Slot] > 0 && n.of(permit.Slot, 0) >= caps[permit.Slot]:
		return true
	}
	return asks[permit.Claim] && caps[permit.Claim] > 0 && n.of(permit.Claim, 0) >= caps[permit.Claim]
}

// TestSets compares the sets with the list, through random grants and revocations.
func TestSets(t *testing.T) {
	keys := rapid.Custom(func(t *rapid.T) key {
		return key{rapid.IntRange(1, 3).Draw(t, "job"), rapid.IntRange(0, 2).Draw(t, "process"), rapid.Uint32Range(0, 2).Draw(t, "thread")}
	})
	kinds := rapid.Map(rapid.SliceOfN(rapid.Bool(), int(permit.Count), int(permit.Count)), func(all []bool) permit.Kinds {
		return permit.Kinds(all)
	})
	rapid.Check(t, func(t *rapid.T) {
		var s sets
		n := naive{}
		t.Repeat(map[string]func(*rapid.T){
			"enter": func(t *rapid.T) {
				key, kinds := keys.Draw(t, "key"), kinds.Draw(t, "kinds")
				s.Grant(key, kinds, key)
				for k, given := range kinds {
					if given {
						n[one{permit.Kind(k), key}] = true
					}
				}
			},
			"leave": func(t *rapid.T) {
				key := keys.Draw(t, "key")
				s.Revoke(key)
				maps.DeleteFunc(n, func(o one, _ bool) bool { return o.key == key })
			},
			"": func(t *rapid.T) {
				n.check(t, &s)
				job, asks := rapid.IntRange(1, 4).Draw(t, "asks"), kinds.Draw(t, "for")
				caps := permit.Caps{permit.Slot: rapid.IntRange(0, 3).Draw(t, "slots"), permit.Claim: rapid.IntRange(0, 1).Draw(t, "claims")}
				if got := s.Full(job, asks, caps); got != n.full(job, asks, caps) {
					t.Fatalf("full for %v of job %d with caps of %v: %v; %v are there", asks, job, caps, got, n)
				}
			},
		})
	})
}
