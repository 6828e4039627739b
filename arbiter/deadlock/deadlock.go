package deadlock

import (
	"slices"

	"github.com/gpuarb/gpuarb/accounting"
)

// Graph is a copy of who holds what and who waits for what.
//
// Parties are jobs that wait. Each limit has a level, the sum of what the parties that do not
// go on hold of it, and each request names for each limit that it needs something
// of the level up to which there is room for it. What everybody else holds counts
// nowhere: they go on, and are taken to give it back. Order is a limit too: its level is the
// number of requests from the first one on that keeps others out and still waits.
//
// The search has every request served for which there is room, takes what its party holds
// off the levels, and goes on until nothing can be served. A level only falls; so the
// requests stand at each limit in the order of their levels, and each is looked at once
// when the level comes down to its own. Those who are left wait for nobody but each other.
type Graph struct {
	Requests []Request // in the order in which they are served
	Parties  []Party
	Limits   []Limit
}

// Request is a request that waits.
type Request struct {
	Party     int // index
	Arrival   int // its rank by arrival
	Holding   bool
	OrderOnly bool // as last judged, nothing refuses it but that others come first
	Any       bool // one of its spots is enough
	Spots     int
	Needs     []Need
	KeepsOut  []int // the order limits at which those that come later wait for it
}

// Need is what a request needs of a limit.
type Need struct {
	Limit, Spot int
	Level       accounting.Sum // there is room while the limit's level is at most this
	Never       bool           // there is none at any level
	Order       bool
}

// Party is a job that waits, and what it holds.
type Party struct {
	Holding  bool // it holds something; else it goes on
	Blocked  bool // all of its threads wait
	Still    bool // all of it that holds something waits: waiting for itself alone is a circle then, and where it is blocked
	Moved    bool // it is no longer as it was copied: it goes on, and its requests keep nobody out
	Holds    []Hold
	Requests []int
}

// Hold is what a party holds of a limit.
type Hold struct {
	Limit  int
	Amount accounting.Sum
}

// Limit is something of which there is so much and no more.
type Limit struct {
	Parties []int // those that hold something of it
}

// Finding is what a search found, by indices; nil: nobody waits in a circle.
type Finding struct {
	Out   int    // to be served out of turn; −1: none
	Path  []int  // a true circle: the youngest request of it, and one of each party from there back to it
	Rests []bool // by party: as long as none of these moves, the finding stands, whatever others do
}

// Hold notes that a party holds so much of a limit.
func (g *Graph) Hold(party, limit int, amount accounting.Sum) {
	if amount == (accounting.Sum{}) {
		return
	}
	p, l := &g.Parties[party], &g.Limits[limit]
	for i := range p.Holds {
		if p.Holds[i].Limit == limit {
			p.Holds[i].Amount = p.Holds[i].Amount.Add(amount)
			return
		}
	}
	p.Holds = append(p.Holds, Hold{limit, amount})
	l.Parties = append(l.Parties, party)
}

// Search finds a circle. A request that waits for nothing but its turn, behind others who
// wait for its party, comes before a true circle, whose youngest request is to be refused.
// strict: who is not blocked goes on.
func (g *Graph) Search(strict bool) *Finding {
	orderOnly := func(r Request) bool { return r.OrderOnly && r.Holding }
	if slices.ContainsFunc(g.Requests, orderOnly) {
		s := g.settle(strict, true)
		out := -1
		for i := range g.Requests {
			r := &g.Requests[i]
			if s.left[i] && r.OrderOnly && !s.gone[r.Party] && (out < 0 || r.Arrival < g.Requests[out].Arrival) {
				out = i
			}
		}
		if out >= 0 {
			return &Finding{Out: out, Rests: s.rests()}
		}
	}
	s := g.settle(strict, false)
	if path := s.circle(); path != nil {
		return &Finding{Out: -1, Path: path, Rests: s.rests()}
	}
	return nil
}

// settling is one run of the search.
type settling struct {
	*Graph
	strict  bool // who is not blocked goes on
	inTurn  bool // nobody is served before those who come first
	left    []bool
	gone    []bool // parties that go on
	levels  []accounting.Sum
	waiting [][]waitingNeed // by limit: those that it stops, the highest level last
	unmet   []int           // by request, kind and spot: how many needs
	first   []int           // of each request in unmet
	open    []int           // by request and kind: how many spots are still to be met
	keepers [][]int         // by limit: the requests that keep others out, the first last
	ready   []int           // requests that can be served
}

// waitingNeed is a need that is not met.
type waitingNeed struct {
	request int
	need    *Need
}

// The kinds of needs.
const (
	needsRoom  = 0
	needsOrder = 1
)

func (n *Need) kind() int {
	if n.Order {
		return needsOrder
	}
	return needsRoom
}

// settle serves whoever can be served, until nobody can.
func (g *Graph) settle(strict, inTurn bool) *settling {
	s := &settling{Graph: g, strict: strict, inTurn: inTurn, left: make([]bool, len(g.Requests)), gone: make([]bool, len(g.Parties)),
		levels: make([]accounting.Sum, len(g.Limits)), waiting: make([][]waitingNeed, len(g.Limits)),
		first: make([]int, len(g.Requests)), open: make([]int, 2*len(g.Requests)), keepers: make([][]int, len(g.Limits))}
	for i := range g.Parties {
		p := &g.Parties[i]
		if s.gone[i] = !p.Holding || p.Moved || strict && !p.Blocked; s.gone[i] {
			continue
		}
		for _, h := range p.Holds {
			s.levels[h.Limit] = s.levels[h.Limit].Add(h.Amount)
		}
	}
	spots := 0
	for i := range g.Requests {
		r := &g.Requests[i]
		s.left[i] = (inTurn || r.Holding) && !g.Parties[r.Party].Moved
		s.first[i], spots = spots, spots+2*r.Spots
	}
	s.unmet = make([]int, spots)
	if inTurn {
		s.lineUp()
	}
	for i := range g.Requests {
		if s.left[i] {
			s.enter(i)
		}
	}
	for _, w := range s.waiting {
		slices.SortFunc(w, func(x, y waitingNeed) int { return x.need.Level.Compare(y.need.Level) })
	}
	for len(s.ready) > 0 {
		i := s.ready[len(s.ready)-1]
		s.ready = s.ready[:len(s.ready)-1]
		s.serve(i)
	}
	return s
}

// lineUp has each request that keeps others out stand in its lines.
func (s *settling) lineUp() {
	for i := len(s.Requests) - 1; i >= 0; i-- {
		for _, l := range s.Requests[i].KeepsOut {
			if k := s.keepers[l]; len(k) == 0 || k[len(k)-1] != i {
				s.keepers[l] = append(k, i)
			}
		}
	}
	for l := range s.keepers {
		s.moveUp(l)
	}
}

// from is the level of a line whose first is a request: how many there are from it on.
func (s *settling) from(request int) accounting.Sum {
	return accounting.SumOf(accounting.Bytes(len(s.Requests) - request))
}

// enter has a request wait at the limits that stop it.
func (s *settling) enter(i int) {
	r := &s.Requests[i]
	for k := range r.Needs {
		n := &r.Needs[k]
		if n.Order && !s.inTurn || !n.Never && s.levels[n.Limit].Compare(n.Level) <= 0 {
			continue
		}
		s.unmet[s.first[i]+2*n.Spot+n.kind()]++
		if !n.Never {
			s.waiting[n.Limit] = append(s.waiting[n.Limit], waitingNeed{i, n})
		}
	}
	for kind := range 2 {
		met := 0
		for spot := range r.Spots {
			if s.unmet[s.first[i]+2*spot+kind] == 0 {
				met++
			}
		}
		switch {
		case !r.Any:
			s.open[2*i+kind] = r.Spots - met
		case met == 0:
			s.open[2*i+kind] = 1
		}
	}
	if s.open[2*i] == 0 && s.open[2*i+1] == 0 {
		s.ready = append(s.ready, i)
	}
}

// met notes that there is room for a need.
func (s *settling) met(w waitingNeed) {
	kind := w.need.kind()
	at := s.first[w.request] + 2*w.need.Spot + kind
	if s.unmet[at]--; s.unmet[at] > 0 || s.open[2*w.request+kind] == 0 {
		return
	}
	s.open[2*w.request+kind]--
	if s.open[2*w.request] == 0 && s.open[2*w.request+1] == 0 {
		s.ready = append(s.ready, w.request)
	}
}

// serve has a request served, and its party go on: what that holds is free.
func (s *settling) serve(i int) {
	s.left[i] = false
	r := &s.Requests[i]
	if !s.gone[r.Party] {
		s.gone[r.Party] = true
		for _, h := range s.Parties[r.Party].Holds {
			s.fall(h.Limit, s.levels[h.Limit].Sub(h.Amount))
		}
	}
	for _, l := range r.KeepsOut {
		s.moveUp(l)
	}
}

// moveUp has the level of a line follow its first request.
func (s *settling) moveUp(line int) {
	k := s.keepers[line]
	if len(k) == 0 {
		return
	}
	for len(k) > 0 && !s.left[k[len(k)-1]] {
		k = k[:len(k)-1]
	}
	s.keepers[line] = k
	to := accounting.Sum{}
	if len(k) > 0 {
		to = s.from(k[len(k)-1])
	}
	s.fall(line, to)
}

// fall lowers a level, and looks at those who have room now.
func (s *settling) fall(limit int, to accounting.Sum) {
	s.levels[limit] = to
	w := s.waiting[limit]
	for len(w) > 0 && to.Compare(w[len(w)-1].need.Level) <= 0 {
		s.met(w[len(w)-1])
		w = w[:len(w)-1]
	}
	s.waiting[limit] = w
}

// rests are the parties without which what was found might not stand: those left, and in turn those
// whose requests keep others out.
func (s *settling) rests() []bool {
	rests := make([]bool, len(s.Parties))
	for i := range s.Requests {
		if party := s.Requests[i].Party; s.left[i] && (s.inTurn || !s.gone[party]) {
			rests[party] = true
		}
	}
	return rests
}

// short calls do with each limit that is full for a request: it waits for those who hold something of it.
func (s *settling) short(request int, do func(limit int)) {
	r := &s.Requests[request]
	for k := range r.Needs {
		if n := &r.Needs[k]; !n.Order && (n.Never || s.levels[n.Limit].Compare(n.Level) > 0) {
			do(n.Limit)
		}
	}
}

// waitsFor reports whether what a request lacks is held by a party.
func (s *settling) waitsFor(request, party int) (yes bool) {
	s.short(request, func(limit int) {
		yes = yes || slices.ContainsFunc(s.Parties[party].Holds, func(h Hold) bool { return h.Limit == limit })
	})
	return yes
}

// circle finds the youngest request of those left that waits, over others, for its own
// party, and the shortest way; else the youngest of a party that stands still and waits for
// itself alone.
func (s *settling) circle() []int {
	of := s.components()
	others := s.holders(of)
	youngest, own := -1, -1
	younger := func(i, than int) bool { return than < 0 || s.Requests[i].Arrival > s.Requests[than].Arrival }
	for i := range s.Requests {
		party := s.Requests[i].Party
		if !s.left[i] || s.gone[party] {
			continue
		}
		if younger(i, youngest) {
			s.short(i, func(limit int) {
				if of[len(s.Parties)+limit] == of[party] && others[limit].besides(party) {
					youngest = i
				}
			})
		}
		if (s.strict || s.Parties[party].Still) && younger(i, own) && s.waitsFor(i, party) {
			own = i
		}
	}
	switch {
	case youngest >= 0:
		return s.path(youngest)
	case own >= 0:
		return []int{own}
	}
	return nil
}

// partners are the holders of a limit in the component that the limit is in itself.
type partners struct{ one, count int }

// besides reports whether there is another one than a party.
func (p partners) besides(party int) bool { return p.count > 1 || p.count == 1 && p.one != party }

// holders finds for each limit those of its holders that are in its own component.
func (s *settling) holders(of []int) []partners {
	all := make([]partners, len(s.Limits))
	for limit := range s.Limits {
		for _, party := range s.Limits[limit].Parties {
			if !s.gone[party] && of[party] == of[len(s.Parties)+limit] {
				all[limit] = partners{party, all[limit].count + 1}
			}
		}
	}
	return all
}

// components finds the strongly connected components of parties and limits (the limits'
// nodes follow the parties'): a party leads to the limits that it is short of, a limit to
// those who hold something of it. It is Tarjan's algorithm, without recursion.
func (s *settling) components() []int {
	n := len(s.Parties) + len(s.Limits)
	edges := make([][]int, n)
	for i := range s.Requests {
		if party := s.Requests[i].Party; s.left[i] && !s.gone[party] {
			s.short(i, func(limit int) { edges[party] = append(edges[party], len(s.Parties)+limit) })
		}
	}
	for limit := range s.Limits {
		for _, party := range s.Limits[limit].Parties {
			if !s.gone[party] {
				edges[len(s.Parties)+limit] = append(edges[len(s.Parties)+limit], party)
			}
		}
	}
	of, index, low, next := make([]int, n), make([]int, n), make([]int, n), make([]int, n)
	var count, found int
	var trail, open []int // the way to the node looked at, and the nodes whose component is not known
	for root := range n {
		if index[root] != 0 {
			continue
		}
		trail = append(trail[:0], root)
		for len(trail) > 0 {
			v := trail[len(trail)-1]
			if index[v] == 0 {
				count++
				index[v], low[v] = count, count
				open = append(open, v)
			}
			if next[v] < len(edges[v]) {
				w := edges[v][next[v]]
				next[v]++
				if index[w] == 0 {
					trail = append(trail, w)
				} else if of[w] == 0 {
					low[v] = min(low[v], index[w])
				}
				continue
			}
			trail = trail[:len(trail)-1]
			if len(trail) > 0 {
				low[trail[len(trail)-1]] = min(low[trail[len(trail)-1]], low[v])
			}
			if low[v] != index[v] {
				continue
			}
			for found++; of[v] == 0; open = open[:len(open)-1] {
				of[open[len(open)-1]] = found
			}
		}
	}
	return of
}

// path finds the shortest way from a request's party over others back to it: one request of
// each party on it.
func (s *settling) path(from int) []int {
	type step struct {
		request int
		before  *step
	}
	home := s.Requests[from].Party
	seen, passed := make([]bool, len(s.Parties)), make([]bool, len(s.Limits))
	seen[home] = true
	trail := []*step{{request: from}}
	for ; len(trail) > 0; trail = trail[1:] {
		at := trail[0]
		if at.before != nil && s.waitsFor(at.request, home) {
			var path []int
			for ; at != nil; at = at.before {
				path = append(path, at.request)
			}
			slices.Reverse(path)
			return path
		}
		var next []int
		s.short(at.request, func(limit int) {
			if passed[limit] {
				return
			}
			passed[limit] = true
			for _, party := range s.Limits[limit].Parties {
				if !s.gone[party] && !seen[party] {
					seen[party] = true
					next = append(next, party)
				}
			}
		})
		slices.SortFunc(next, func(x, y int) int { return s.oldest(x) - s.oldest(y) })
		for _, party := range next { // any of its waiting threads may be the one that closes the circle
			for _, i := range s.Parties[party].Requests {
				if s.left[i] {
					trail = append(trail, &step{i, at})
				}
			}
		}
	}
	return nil
}

// oldest is the arrival of a party's first request.
func (s *settling) oldest(party int) int { return s.Requests[s.Parties[party].Requests[0]].Arrival }
