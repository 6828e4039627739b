package accounting_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/gpuarb/gpuarb/accounting"
)

// This file runs random operations on the ledger and on the model in model_test.go, and the two must always agree. The operations include
// lost devices, and restarts that restore everything in any order. ledger_test.go has small cases with fixed figures.

func amounts() *rapid.Generator[accounting.Bytes] {
	return rapid.OneOf(
		rapid.Map(rapid.Uint64Range(0, 24), func(n uint64) accounting.Bytes { return accounting.Bytes(n) }),
		rapid.Map(rapid.Uint64Range(0, 24), func(n uint64) accounting.Bytes { return accounting.Max - accounting.Bytes(n) }),
		rapid.Map(rapid.Uint64(), func(n uint64) accounting.Bytes { return accounting.Bytes(n) }),
	)
}

// small draws amounts from 0 to 24. These reach limits more often than amounts of any size.
func small() *rapid.Generator[accounting.Bytes] {
	return rapid.Map(rapid.Uint64Range(0, 24), func(n uint64) accounting.Bytes { return accounting.Bytes(n) })
}

// TestLedgerAgainstModel drives random operations over nested budgets on two
// devices, with small amounts and with amounts near 2^64.
func TestLedgerAgainstModel(t *testing.T) {
	t.Run("small", rapid.MakeCheck(func(t *rapid.T) { drive(t, small()) }))
	t.Run("any", rapid.MakeCheck(func(t *rapid.T) { drive(t, amounts()) }))
}

func drive(t *rapid.T, bytes *rapid.Generator[accounting.Bytes]) {
	m := &model{ledger: accounting.NewLedger(), capacity: map[int]accounting.Bytes{}}
	for _, index := range []int{0, 3} {
		m.capacity[index] = bytes.Draw(t, "capacity")
		if err := m.ledger.AddDevice(index, m.capacity[index]); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 4 {
		c := &modelBudget{id: -1 - i, limits: map[int]accounting.Limits{}, own: map[int]accounting.Bytes{}, real: m.ledger.OpenCap()}
		c.real.Owner = c
		m.caps = append(m.caps, c)
	}
	device := rapid.SampledFrom([]int{0, 3})
	budget := func(t *rapid.T) *modelBudget {
		if len(m.budgets) == 0 {
			return m.openBudget(nil)
		}
		return rapid.SampledFrom(m.budgets).Draw(t, "budget")
	}
	openLease := func(t *rapid.T) *modelLease {
		return m.openLease(t, budget(t), device.Draw(t, "device"), rapid.IntRange(-1, 4).Draw(t, "streams"))
	}
	lease := func(t *rapid.T) *modelLease {
		if len(m.leases) == 0 {
			return openLease(t)
		}
		return rapid.SampledFrom(m.leases).Draw(t, "lease")
	}
	actions := map[string]func(*rapid.T){
		"openBudget":  func(*rapid.T) { m.openBudget(nil) },
		"openNested":  func(t *rapid.T) { m.openBudget(budget(t)) },
		"closeBudget": func(t *rapid.T) { m.closeBudget(t, budget(t)) },
		"moveBudget":  func(t *rapid.T) { m.move(t, budget(t), budget(t), rapid.Bool().Draw(t, "to root")) },
		"setLimits": func(t *rapid.T) {
			least, most := bytes.Draw(t, "min"), bytes.Draw(t, "max")
			m.setLimits(t, budget(t), device.Draw(t, "device"), accounting.Limits{Min: least, Max: most})
		},
		"setCaps": func(t *rapid.T) {
			m.setCaps(t, budget(t), rapid.SliceOfNDistinct(rapid.SampledFrom(m.caps), 0, 3, rapid.ID).Draw(t, "caps"))
		},
		"limitCap": func(t *rapid.T) {
			least, most := bytes.Draw(t, "min"), bytes.Draw(t, "max")
			m.setLimits(t, rapid.SampledFrom(m.caps).Draw(t, "cap"), device.Draw(t, "device"), accounting.Limits{Min: least, Max: most})
		},
		"chargeBudget": func(t *rapid.T) {
			m.chargeBudget(t, budget(t), device.Draw(t, "device"), bytes.Draw(t, "n"))
		},
		"setCapacity": func(t *rapid.T) { m.setCapacity(t, device.Draw(t, "device"), bytes.Draw(t, "capacity")) },
		"checkMin": func(t *rapid.T) {
			m.checkMin(t, budget(t), device.Draw(t, "device"), bytes.Draw(t, "min"))
		},
		"openLease":    func(t *rapid.T) { openLease(t) },
		"closeLease":   func(t *rapid.T) { m.closeLease(lease(t)) },
		"room":         func(t *rapid.T) { m.room(t, lease(t)) },
		"streams":      func(t *rapid.T) { m.streams(t, lease(t), rapid.IntRange(-5, 5).Draw(t, "n")) },
		"forceStreams": func(t *rapid.T) { m.forceStreams(t, lease(t), rapid.IntRange(0, 9).Draw(t, "n")) },
		"resume": func(t *rapid.T) {
			m.resume(t, lease(t), bytes.Draw(t, "used"), rapid.IntRange(0, 9).Draw(t, "streams"))
		},
		"loseDevice": func(t *rapid.T) { m.loseDevice(t, device.Draw(t, "device")) },
		"restore":    func(t *rapid.T) { m.restore(t) },
		"":           m.check,
	}
	for name, act := range map[string]func(*rapid.T, *modelLease, accounting.Bytes){
		"reserve": m.reserve, "release": m.release, "force": m.force, "charge": m.charge, "growth": m.growth,
		"apart": m.reserveApart, "away": m.setAway,
	} {
		actions[name] = func(t *rapid.T) { act(t, lease(t), bytes.Draw(t, "n")) }
	}
	t.Repeat(actions)
}

func (m *model) setLimits(t *rapid.T, b *modelBudget, device int, l accounting.Limits) {
	if err := m.ledger.SetLimits(b.real, device, l); err != nil {
		t.Fatal(err)
	}
	b.limits[device] = l
}

func (m *model) chargeBudget(t *rapid.T, b *modelBudget, device int, n accounting.Bytes) {
	if err := m.ledger.ChargeBudget(b.real, device, n); err != nil {
		t.Fatal(err)
	}
	b.own[device] = min(n, mostHeld)
}

func (m *model) setCapacity(t *rapid.T, device int, n accounting.Bytes) {
	m.capacity[device] = n
	if err := m.ledger.SetCapacity(device, n); err != nil {
		t.Fatal(err)
	}
}

func (m *model) closeLease(l *modelLease) {
	l.real.Close()
	m.leases = slices.DeleteFunc(m.leases, func(x *modelLease) bool { return x == l })
}

func (m *model) release(t *rapid.T, l *modelLease, n accounting.Bytes) {
	want := min(n, l.granted)
	if got := l.real.Release(accounting.Memory, n); got != want {
		t.Fatalf("released %d, want %d", got, want)
	}
	l.granted -= want
	l.away -= min(want, l.away)
}

func (m *model) force(t *rapid.T, l *modelLease, n accounting.Bytes) {
	want := min(n, mostHeld-l.granted-l.charged)
	if got := l.real.Force(accounting.Memory, n); got != want {
		t.Fatalf("forced %d, want %d", got, want)
	}
	l.granted += want
}

func (m *model) charge(_ *rapid.T, l *modelLease, n accounting.Bytes) {
	l.real.Charge(n)
	l.charged = min(n, mostHeld-l.granted)
}

func (m *model) openBudget(parent *modelBudget) *modelBudget {
	m.opened++
	b := &modelBudget{id: m.opened, parent: parent, limits: map[int]accounting.Limits{}, own: map[int]accounting.Bytes{}}
	var above *accounting.Budget
	if parent != nil {
		above = parent.real
	}
	b.real = m.ledger.OpenBudget(above)
	b.real.Owner = b
	m.budgets = append(m.budgets, b)
	return b
}

func (m *model) openLease(t *rapid.T, b *modelBudget, device, most int) *modelLease {
	real := new(accounting.Lease)
	if err := m.ledger.OpenLease(real, b.real, device, most); err != nil {
		t.Fatal(err)
	}
	l := &modelLease{budget: b, real: real, device: device, most: max(1, most)}
	m.leases = append(m.leases, l)
	return l
}

// forceStreams adds streams to a lease as after a restart, even if they exceed the lease's limit.
func (m *model) forceStreams(t *rapid.T, l *modelLease, n int) {
	if got := l.real.Force(accounting.Streams, accounting.Bytes(n)); got != accounting.Bytes(n) {
		t.Fatalf("forced %d streams, want %d", got, n)
	}
	l.streams += n
}

// resume sets a lease to the bytes and streams that its client reports, which may be more or fewer than the ledger has.
func (m *model) resume(t *rapid.T, l *modelLease, used accounting.Bytes, streams int) {
	if used < l.granted {
		m.release(t, l, l.granted-used)
	} else {
		m.force(t, l, used-l.granted)
	}
	if streams < l.streams {
		m.streams(t, l, streams-l.streams)
	} else {
		m.forceStreams(t, l, streams-l.streams)
	}
}

// loseDevice clears all leases of a device, and closes some of them at random.
func (m *model) loseDevice(t *rapid.T, device int) {
	for _, l := range slices.Clone(m.leases) {
		if l.device != device {
			continue
		}
		l.real.Clear()
		l.granted, l.away, l.charged, l.streams = 0, 0, 0, 0
		if rapid.Bool().Draw(t, "its process is dead") {
			m.closeLease(l)
		}
	}
}

// restore makes a new ledger with everything that the old one held, as a new daemon does: in random order, and even if it does not fit the
// limits.
func (m *model) restore(t *rapid.T) {
	m.ledger = accounting.NewLedger()
	for device, capacity := range m.capacity {
		if err := m.ledger.AddDevice(device, capacity); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range m.caps {
		c.real = m.ledger.OpenCap()
	}
	for _, b := range m.budgets {
		b.real = m.ledger.OpenBudget(nil)
	}
	steps := []func(){}
	for _, b := range slices.Concat(m.budgets, m.caps) {
		b.real.Owner = b
		for device, limits := range b.limits {
			steps = append(steps, func() { m.setLimits(t, b, device, limits) })
		}
		for device, n := range b.own {
			steps = append(steps, func() { m.chargeBudget(t, b, device, n) })
		}
		if b.parent != nil {
			steps = append(steps, func() { m.move(t, b, b.parent, false) })
		}
		if len(b.caps) > 0 {
			steps = append(steps, func() { m.setCaps(t, b, b.caps) })
		}
	}
	for _, l := range m.leases {
		steps = append(steps, func() { m.restoreLease(t, l) })
	}
	for _, step := range rapid.Permutation(steps).Draw(t, "order") {
		step()
	}
}

// restoreLease opens a lease in the new ledger with the amounts that it holds.
func (m *model) restoreLease(t *rapid.T, l *modelLease) {
	held := *l
	l.real, l.granted, l.away, l.charged, l.streams = new(accounting.Lease), 0, 0, 0, 0
	if err := m.ledger.OpenLease(l.real, l.budget.real, l.device, l.most); err != nil {
		t.Fatal(err)
	}
	m.force(t, l, held.granted)
	m.setAway(t, l, held.away)
	m.charge(t, l, held.charged)
	m.forceStreams(t, l, held.streams)
}
