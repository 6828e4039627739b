package accounting_test

import (
	"cmp"
	"math/big"
	"slices"

	"pgregory.net/rapid"

	"github.com/gpuarb/gpuarb/accounting"
)

// This file has the model of the ledger, and the comparison of one operation with it. The model knows only limits and leases, and computes
// every sum from scratch with integers of any size. drive_test.go chooses the operations.

type (
	modelBudget struct {
		id     int
		parent *modelBudget
		caps   []*modelBudget
		real   *accounting.Budget
		limits map[int]accounting.Limits
		own    map[int]accounting.Bytes // bytes that count against the budget and belong to no lease
	}
	modelLease struct {
		budget           *modelBudget
		real             *accounting.Lease
		device           int
		granted, charged accounting.Bytes
		away             accounting.Bytes // part of granted that counts at budgets, but not at the device
		streams, most    int
	}
	model struct {
		ledger   *accounting.Ledger
		capacity map[int]accounting.Bytes
		budgets  []*modelBudget
		caps     []*modelBudget
		leases   []*modelLease
		opened   int // number of budgets opened so far, also closed ones; the ID of the last
	}
)

// mostHeld is the most that one lease can hold and one budget can reserve.
const mostHeld accounting.Bytes = 1 << 48

func integer(b accounting.Bytes) *big.Int { return new(big.Int).SetUint64(uint64(b)) }

func larger(x, y *big.Int) *big.Int {
	if x.Cmp(y) < 0 {
		return y
	}
	return x
}

func (b *modelBudget) limit(device int) accounting.Limits {
	if l, ok := b.limits[device]; ok {
		return l
	}
	return accounting.Limits{Max: accounting.Max}
}

// chain returns b and all budgets that it is charged to, in the order in which they are checked.
func (b *modelBudget) chain() (all []*modelBudget) {
	for ; b != nil; b = b.parent {
		all = append(append(all, b), b.caps...)
	}
	return all
}

// twice reports whether some budget would be charged to the same budget by two paths, such as its own caps and its parent's. The ledger
// does not allow that.
func (m *model) twice() bool {
	return slices.ContainsFunc(m.budgets, func(b *modelBudget) bool {
		chain := b.chain()
		slices.SortFunc(chain, func(x, y *modelBudget) int { return cmp.Compare(x.id, y.id) })
		return len(slices.Compact(chain)) < len(b.chain())
	})
}

// held returns the sum that all leases at or below b hold.
func (m *model) held(b *modelBudget, device int) *big.Int {
	total := new(big.Int)
	for _, l := range m.leases {
		for _, p := range l.budget.chain() {
			if l.device == device && p == b {
				total.Add(total, integer(l.granted))
				total.Add(total, integer(l.charged))
			}
		}
	}
	for _, x := range m.budgets {
		if slices.Contains(x.chain(), b) {
			total.Add(total, integer(x.own[device]))
		}
	}
	return total
}

// load returns the sum of what b's own leases hold and what its children contribute.
func (m *model) load(b *modelBudget, device int) *big.Int { return m.loadAs(b, device, false) }

func (m *model) commit(b *modelBudget, device int) *big.Int { return m.commitAs(b, device, false) }

// loadAs does the work of load. With asDevice it omits the bytes that are away from the device.
func (m *model) loadAs(b *modelBudget, device int, asDevice bool) *big.Int {
	total := integer(b.own[device])
	for _, l := range m.leases {
		if l.budget == b && l.device == device {
			total.Add(total, integer(l.granted))
			total.Add(total, integer(l.charged))
			if asDevice {
				total.Sub(total, integer(l.away))
			}
		}
	}
	for _, kid := range slices.Concat(m.budgets, m.caps) {
		if kid.parent == b || slices.Contains(kid.caps, b) {
			total.Add(total, m.commitAs(kid, device, asDevice))
		}
	}
	return total
}

func (m *model) commitAs(b *modelBudget, device int, asDevice bool) *big.Int {
	l := b.limit(device)
	if slices.Contains(m.caps, b) {
		l.Min = 0
	}
	return larger(m.loadAs(b, device, asDevice), integer(min(l.Min, l.Max, mostHeld)))
}

// committed returns the bytes that are granted or reserved on the device.
func (m *model) committed(device int) *big.Int {
	total := new(big.Int)
	for _, b := range m.budgets {
		if b.parent == nil {
			total.Add(total, m.commitAs(b, device, true))
		}
	}
	return total
}

// passes reports whether one limit (nil: the device) allows l n bytes more.
func (m *model) passes(at *modelBudget, l *modelLease, n accounting.Bytes) bool {
	sum := func() *big.Int {
		if at == nil {
			return m.committed(l.device)
		}
		return m.load(at, l.device)
	}
	if n == 0 {
		return true // nothing grows
	}
	old := l.charged
	before := sum()
	restore := l.granted
	// The model keeps granted and charged bytes in one sum, which cannot overflow.
	half := min(n, accounting.Max-l.granted)
	l.granted += half
	if n-half > accounting.Max-l.charged {
		l.granted = restore
		return false
	}
	l.charged += n - half
	defer func() { l.granted, l.charged = restore, old }()
	after := sum()
	limit := m.capacity[l.device]
	if at != nil {
		limit = at.limit(l.device).Max
	}
	if after.Cmp(before) > 0 {
		return after.Cmp(integer(limit)) <= 0
	}
	return at == nil || m.held(at, l.device).Cmp(integer(limit)) <= 0
}

// refuser returns the first limit that refuses, from the lease's own upwards.
func (m *model) refuser(l *modelLease, n accounting.Bytes) (at *modelBudget, refused bool) {
	for _, b := range l.budget.chain() {
		if !m.passes(b, l, n) {
			return b, true
		}
	}
	return nil, !m.passes(nil, l, n)
}

func (m *model) closeBudget(t *rapid.T, b *modelBudget) {
	used := false
	for _, x := range m.budgets {
		used = used || x.parent == b
	}
	for _, l := range m.leases {
		used = used || l.budget == b
	}
	if err := m.ledger.CloseBudget(b.real); (err != nil) != used {
		t.Fatalf("close: %v, in use: %v", err, used)
	}
	for i := range m.budgets {
		if !used && m.budgets[i] == b {
			m.budgets = append(m.budgets[:i:i], m.budgets[i+1:]...)
			break
		}
	}
}

func (m *model) move(t *rapid.T, b, to *modelBudget, root bool) {
	cycle := false
	for p := to; p != nil && !root; p = p.parent {
		cycle = cycle || p == b
	}
	above, old := to.real, b.parent
	if root {
		above, to = nil, nil
	}
	if !cycle {
		if b.parent = to; m.twice() {
			b.parent = old
			return
		}
	}
	if err := m.ledger.MoveBudget(b.real, above); (err != nil) != cycle {
		t.Fatalf("move: %v, cycle: %v", err, cycle)
	}
}

// setCaps puts a budget under some of the caps.
func (m *model) setCaps(t *rapid.T, b *modelBudget, caps []*modelBudget) {
	old := b.caps
	if b.caps = caps; m.twice() {
		b.caps = old
		return
	}
	real := make([]*accounting.Budget, len(caps))
	for i, c := range caps {
		real[i] = c.real
	}
	if err := m.ledger.SetCaps(b.real, real...); err != nil {
		t.Fatalf("set caps: %v", err)
	}
}

// growth checks Growth if a lease gets n bytes more: by how much the load of each budget above the lease's own budget grows, and that of the
// device.
func (m *model) growth(t *rapid.T, l *modelLease, n accounting.Bytes) {
	if n > mostHeld-l.granted-l.charged {
		return
	}
	chain := append(l.budget.chain(), nil)
	before := make([]*big.Int, len(chain))
	sum := func(b *modelBudget) *big.Int {
		if b == nil {
			return m.committed(l.device)
		}
		return m.load(b, l.device)
	}
	for i, b := range chain {
		before[i] = sum(b)
	}
	l.granted += n
	for i, b := range chain {
		var real *accounting.Budget
		if b != nil {
			real = b.real
		}
		if got, want := integer(l.real.Growth(n, real)), new(big.Int).Sub(sum(b), before[i]); i > 0 && got.Cmp(want) != 0 {
			t.Errorf("level %d grows by %d, said to by %d", i, want, got)
		}
	}
	l.granted -= n
}

// reserveApart asks for managed memory, for which no device needs room.
func (m *model) reserveApart(t *rapid.T, l *modelLease, n accounting.Bytes) {
	if n > mostHeld-l.granted-l.charged {
		return
	}
	var at *modelBudget
	for _, b := range slices.Backward(l.budget.chain()) {
		if !m.passes(b, l, n) {
			at = b
		}
	}
	r := l.real.Reserve(accounting.Managed(n))
	if (r != nil) != (at != nil) {
		t.Fatalf("reserve %d apart: %+v, the model refuses: %v", n, r, at)
	}
	if r == nil {
		l.granted, l.away = l.granted+n, l.away+n
	} else if got, _ := owner(r.Budget); got != at {
		t.Fatalf("refused by %v, want %v", r.Budget, at)
	}
}

func (m *model) setAway(_ *rapid.T, l *modelLease, n accounting.Bytes) {
	l.real.SetAway(n)
	l.away = min(n, l.granted)
}

func (m *model) reserve(t *rapid.T, l *modelLease, n accounting.Bytes) {
	at, refused := m.refuser(l, n)
	r := l.real.Reserve(memory(n))
	if r == nil && n > mostHeld-l.granted-l.charged {
		t.Fatalf("granted %d bytes beyond what a lease can hold", n)
	}
	if (r != nil) != refused && n <= mostHeld-l.granted-l.charged {
		t.Fatalf("reserve %d: %v, the model refuses: %v", n, r, refused)
	}
	if r == nil {
		l.granted += n
		return
	}
	if !refused || n > mostHeld-l.granted-l.charged { // a single lease may not hold that much, which is not a limit of the model
		return
	}
	if got, _ := owner(r.Budget); got != at {
		t.Fatalf("refused by %v, want %v", r.Budget, at)
	}
	if r.Requested != n || r.Remaining >= n || r.Short == 0 {
		t.Fatalf("refusal of %d: %+v", n, r)
	}
	if !m.passes(at, l, r.Remaining) || m.passes(at, l, r.Remaining+1) {
		t.Fatalf("remaining %d is not the most that passes", r.Remaining)
	}
	m.yields(t, r, at, l, n)
}

// yields checks Yield at the limit that refused a request. If another lease can release all bytes that the request is short of, the
// request fits after this release, and does not fit after the release of one byte less.
func (m *model) yields(t *rapid.T, r *accounting.Refusal, at *modelBudget, l *modelLease, n accounting.Bytes) {
	if n > accounting.Max>>1 || l.granted+l.charged > accounting.Max>>1 {
		return
	}
	for _, other := range m.leases {
		if other == l || other.device != l.device || !other.below(at) {
			continue
		}
		gain := l.real.Check(memory(n)).Yield(other.real, min(other.granted, r.Short))
		if gain < r.Short || r.Short == accounting.Max || other.away > 0 { // Max: the exact number is not known
			continue
		}
		other.granted -= gain
		if !m.passes(at, l, n) {
			t.Fatalf("short of %d, which another releases, and still refused", r.Short)
		}
		other.granted++
		if m.passes(at, l, n) {
			t.Fatalf("short of %d, but one less is enough", r.Short)
		}
		other.granted += gain - 1
	}
}

func (l *modelLease) below(at *modelBudget) bool {
	return at == nil || slices.Contains(l.budget.chain(), at)
}

func owner(b *accounting.Budget) (*modelBudget, bool) {
	if b == nil {
		return nil, false
	}
	return b.Owner.(*modelBudget), true
}

func (m *model) room(t *rapid.T, l *modelLease) {
	room := l.real.Room()
	if _, refused := m.refuser(l, room); refused {
		t.Fatalf("room of %d is refused", room)
	}
	if room == mostHeld-l.granted-l.charged {
		return
	}
	if _, refused := m.refuser(l, room+1); !refused {
		t.Fatalf("room of %d, but one more passes", room)
	}
}

func (m *model) checkMin(t *rapid.T, b *modelBudget, d int, least accounting.Bytes) {
	r := m.ledger.CheckMin(b.real, d, least, 0)
	before := map[*modelBudget]*big.Int{}
	above := b.chain()[1:]
	for _, p := range above {
		before[p] = m.load(p, d)
	}
	was, old := m.committed(d), b.limit(d)
	if min(old.Min, old.Max) > least {
		return // it asks for a raise
	}
	b.limits[d] = accounting.Limits{Min: least, Max: accounting.Max}
	refused := false
	for _, p := range above {
		after := m.load(p, d)
		refused = refused || after.Cmp(before[p]) > 0 && after.Cmp(integer(p.limit(d).Max)) > 0
	}
	now := m.committed(d)
	refused = refused || now.Cmp(was) > 0 && now.Cmp(integer(m.capacity[d])) > 0
	b.limits[d] = old
	if (r != nil) != refused {
		t.Fatalf("min of %d: %v, the model refuses: %v", least, r, refused)
	}
}

func (m *model) streams(t *rapid.T, l *modelLease, n int) {
	if n < 0 {
		want := min(-n, l.streams)
		if got := int(l.real.Release(accounting.Streams, accounting.Bytes(-n))); got != want {
			t.Fatalf("gave back %d streams, want %d", got, want)
		}
		l.streams -= want
		return
	}
	want := n == 0 || l.streams+n <= l.most
	if got := l.real.Reserve(streams(n)) == nil; got != want {
		t.Fatalf("took %d streams of %d with %d: %v", n, l.most, l.streams, got)
	}
	if want {
		l.streams += n
	}
}

func saturated(x *big.Int) accounting.Bytes {
	if !x.IsUint64() {
		return accounting.Max
	}
	return accounting.Bytes(x.Uint64())
}

// left checks the reported room of a limit.
func (m *model) left(t *rapid.T, b *accounting.Budget, device int, most accounting.Bytes, load *big.Int) {
	want := saturated(larger(new(big.Int).Sub(integer(most), load), new(big.Int)))
	direct := new(accounting.Lease)
	if err := m.ledger.Probe(direct, nil, device); err != nil {
		t.Fatal(err)
	}
	if got := m.ledger.Available(b, device); got != want || b == nil && direct.Room() != min(want, mostHeld) {
		t.Fatalf("%d left on %d, want %d", got, device, want)
	}
}

// check compares all sums.
func (m *model) check(t *rapid.T) {
	for d, capacity := range m.capacity {
		granted, held, streams, count := new(big.Int), new(big.Int), 0, 0
		for _, l := range m.leases {
			if l.device != d {
				continue
			}
			granted.Add(granted, integer(l.granted))
			held.Add(held, integer(l.granted))
			held.Add(held, integer(l.charged))
			held.Sub(held, integer(l.away))
			streams += l.streams
			count++
		}
		for _, b := range m.budgets {
			held.Add(held, integer(b.own[d]))
		}
		want := accounting.Account{
			Limit: capacity, Granted: saturated(granted), Held: saturated(held),
			Committed: saturated(m.committed(d)), Streams: streams,
		}
		if got := m.ledger.Device(d); got != want {
			t.Fatalf("device %d: %+v, want %+v", d, got, want)
		}
		for range m.ledger.Leases(d) {
			count--
		}
		if count != 0 {
			t.Fatalf("%d leases too few on device %d", count, d)
		}
		m.left(t, nil, d, capacity, m.committed(d))
		for _, b := range slices.Concat(m.budgets, m.caps) {
			held, most := m.held(b, d), b.limit(d).Max
			want := accounting.Account{Limit: most, Held: saturated(held), Committed: saturated(m.commit(b, d))}
			if got := b.real.Account(d); got != want {
				t.Fatalf("budget on %d: %+v, want %+v", d, got, want)
			}
			m.left(t, b.real, d, most, m.load(b, d))
			if got := b.real.Charged(d); got != b.own[d] {
				t.Fatalf("%d are charged to a budget on %d, want %d", got, d, b.own[d])
			}
			if got, want := b.real.Over(d), held.Cmp(integer(most)) > 0; got != want {
				t.Fatalf("over: %v, want %v", got, want)
			}
			n := 0
			for range b.real.Leases(d) {
				n++
			}
			for _, l := range m.leases {
				if l.device == d && l.below(b) {
					n--
				}
			}
			if n != 0 {
				t.Fatalf("%d leases too many below a budget", n)
			}
		}
	}
	for _, l := range m.leases {
		if l.real.Granted() != l.granted || l.real.Charged() != l.charged || l.real.Streams() != l.streams || l.real.Away() != l.away {
			t.Fatalf("lease: %d %d %d, want %+v", l.real.Granted(), l.real.Charged(), l.real.Streams(), l)
		}
	}
}
