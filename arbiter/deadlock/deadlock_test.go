package deadlock

import (
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/gpuarb/gpuarb/accounting"
)

// TestSearchAgainstBruteForce compares the search for circles with one that tries everything,
// on small graphs.
func TestSearchAgainstBruteForce(t *testing.T) {
	found := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		g := randomGraph(t)
		strict := rapid.Bool().Draw(t, "strict")
		f, o := g.Search(strict), oracle{g, strict}
		out, youngest := o.search()
		switch {
		case f == nil && (out >= 0 || youngest >= 0):
			t.Fatalf("nothing found, and it was to be %d out of turn, or %d refused\n%+v", out, youngest, g)
		case f == nil:
			found["nothing"]++
		case f.Out != out:
			t.Fatalf("%d out of turn, not %d\n%+v", f.Out, out, g)
		case f.Out >= 0:
			found["out of turn"]++
		case f.Path[0] != youngest:
			t.Fatalf("%d is refused, not %d\n%+v", f.Path[0], youngest, g)
		default:
			found["circle"]++
			o.checkPath(t, f.Path)
		}
		if f != nil {
			for p := range g.Parties {
				g.Parties[p].Moved = g.Parties[p].Moved || !f.Rests[p]
			}
			if again := g.Search(strict); !reflect.DeepEqual(again, f) {
				t.Fatalf("found %+v, and %+v where all others have moved\n%+v", f, again, g)
			}
		}
	})
	if len(found) < 3 {
		t.Errorf("too little was tried: %v", found)
	}
}

// randomGraph has a few parties that hold, and requests that want, parts of a few limits;
// the last two limits are lines.
func randomGraph(t *rapid.T) *Graph {
	below := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "n") }
	g := &Graph{Parties: make([]Party, 1+below(4)), Limits: make([]Limit, 2+1+below(4))}
	resources, lines := len(g.Limits)-2, len(g.Limits)-2
	for p := range g.Parties {
		g.Parties[p] = Party{Holding: below(8) > 0, Blocked: below(4) > 0, Still: below(2) == 0, Moved: below(8) == 0}
		for limit := range resources {
			if amount := accounting.SumOf(accounting.Bytes(below(4))); amount != (accounting.Sum{}) {
				g.Hold(p, limit, amount)
			}
		}
	}
	parties := len(g.Parties)
	n := parties + below(4)
	arrivals := rapid.Permutation(numbers(n)).Draw(t, "arrivals")
	at := make([]int, n)
	for i := range n {
		r := Request{Arrival: arrivals[i], Any: below(4) == 0, Spots: 1 + below(2), OrderOnly: below(4) == 0}
		at[arrivals[i]] = i
		if i < parties { // each party waits
			r.Party, r.Holding = i, true
		} else if r.Party = below(parties+1) - 1; r.Party >= 0 {
			r.Holding = true
		} else { // its job holds nothing, and goes on
			r.Party = len(g.Parties)
			g.Parties = append(g.Parties, Party{})
		}
		for spot := range r.Spots {
			for range 1 + below(2) {
				limit := below(resources)
				r.Needs = append(r.Needs, Need{Limit: limit, Spot: spot, Level: accounting.SumOf(accounting.Bytes(below(8))), Never: below(8) == 0})
			}
			for line := lines; line < len(g.Limits); line++ {
				if below(2) == 0 {
					r.Needs = append(r.Needs, Need{Limit: line, Spot: spot, Order: true, Level: accounting.SumOf(accounting.Bytes(n - i))})
				}
				if below(2) == 0 {
					r.KeepsOut = append(r.KeepsOut, line)
				}
			}
		}
		g.Requests = append(g.Requests, r)
	}
	for _, i := range at {
		p := g.Requests[i].Party
		g.Parties[p].Requests = append(g.Parties[p].Requests, i)
	}
	return g
}

func numbers(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

// oracle looks at everything each time.
type oracle struct {
	*Graph
	strict bool
}

// state is who is left in thought.
type oracleState struct {
	left []bool
	gone []bool
}

func (o oracle) search() (out, youngest int) {
	out, youngest = -1, -1
	s := o.settle(true)
	for i, r := range o.Requests {
		if s.left[i] && r.OrderOnly && !s.gone[r.Party] && (out < 0 || r.Arrival < o.Requests[out].Arrival) {
			out = i
		}
	}
	if out >= 0 {
		return out, -1
	}
	s = o.settle(false)
	own := -1
	younger := func(i, than int) bool { return than < 0 || o.Requests[i].Arrival > o.Requests[than].Arrival }
	for i, r := range o.Requests {
		if !s.left[i] || s.gone[r.Party] {
			continue
		}
		if younger(i, youngest) && o.reaches(s, i, r.Party, make([]bool, len(o.Parties))) {
			youngest = i
		}
		if (o.strict || o.Parties[r.Party].Still) && younger(i, own) && o.waits(s, i, r.Party) {
			own = i
		}
	}
	if youngest < 0 {
		youngest = own
	}
	return out, youngest
}

func (o oracle) settle(inTurn bool) *oracleState {
	s := &oracleState{left: make([]bool, len(o.Requests)), gone: make([]bool, len(o.Parties))}
	for p, party := range o.Parties {
		s.gone[p] = !party.Holding || party.Moved || o.strict && !party.Blocked
	}
	for i, r := range o.Requests {
		s.left[i] = (inTurn || r.Holding) && !o.Parties[r.Party].Moved
	}
	for again := true; again; {
		again = false
		for i, r := range o.Requests {
			if !s.left[i] || !o.all(s, i, false) || inTurn && !o.all(s, i, true) {
				continue
			}
			s.left[i], s.gone[r.Party], again = false, true, true
		}
	}
	return s
}

// all reports whether what a request needs, of room or of order, is there at all its spots,
// or at any.
func (o oracle) all(s *oracleState, i int, order bool) bool {
	r := o.Requests[i]
	for spot := range r.Spots {
		met := !slices.ContainsFunc(r.Needs, func(n Need) bool { return n.Spot == spot && n.Order == order && o.unmet(s, i, n) })
		if met == r.Any {
			return met
		}
	}
	return !r.Any
}

func (o oracle) unmet(s *oracleState, i int, n Need) bool {
	if n.Order {
		for k := range i {
			if s.left[k] && slices.Contains(o.Requests[k].KeepsOut, n.Limit) {
				return true
			}
		}
		return false
	}
	return n.Never || o.level(s, n.Limit).Compare(n.Level) > 0
}

func (o oracle) level(s *oracleState, limit int) (sum accounting.Sum) {
	for p := range o.Parties {
		if !s.gone[p] {
			sum = sum.Add(o.held(p, limit))
		}
	}
	return sum
}

func (o oracle) held(party, limit int) (sum accounting.Sum) {
	for _, h := range o.Parties[party].Holds {
		if h.Limit == limit {
			sum = sum.Add(h.Amount)
		}
	}
	return sum
}

// waits reports whether a request lacks what a party holds.
func (o oracle) waits(s *oracleState, i, party int) bool {
	return !s.gone[party] && slices.ContainsFunc(o.Requests[i].Needs, func(n Need) bool {
		return !n.Order && o.unmet(s, i, n) && o.held(party, n.Limit) != accounting.Sum{}
	})
}

// reaches reports whether a request waits, over other parties, for its own.
func (o oracle) reaches(s *oracleState, i, home int, seen []bool) bool {
	for p := range o.Parties {
		if p == home || seen[p] || !o.waits(s, i, p) {
			continue
		}
		seen[p] = true
		for k, r := range o.Requests {
			if r.Party == p && s.left[k] && (o.waits(s, k, home) || o.reaches(s, k, home, seen)) {
				return true
			}
		}
	}
	return false
}

// checkPath checks that each request of a circle waits for the next one's party.
func (o oracle) checkPath(t *rapid.T, path []int) {
	s := o.settle(false)
	seen := map[int]bool{}
	for k, i := range path {
		next := o.Requests[path[(k+1)%len(path)]].Party
		if p := o.Requests[i].Party; seen[p] || !s.left[i] || !o.waits(s, i, next) {
			t.Fatalf("no circle: %v\n%+v", path, o.Graph)
		} else {
			seen[p] = true
		}
	}
}
