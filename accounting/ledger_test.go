package accounting_test

import (
	"errors"
	"testing"

	"github.com/gpuarb/gpuarb/accounting"
)

// A lease gets bytes and streams up to each limit above it, and a refusal names the limit and what is left there. The expected figures are
// added up by hand. drive_test.go compares random operations with a model.

const mib accounting.Bytes = 1 << 20

func memory(n accounting.Bytes) accounting.Amounts { return accounting.OnDevice(n) }

func streams(n int) accounting.Amounts {
	return accounting.Amounts{accounting.Streams: accounting.Bytes(n)}
}

// machine returns a ledger with one device of the given capacity.
func machine(t *testing.T, capacity accounting.Bytes) *accounting.Ledger {
	t.Helper()
	l := accounting.NewLedger()
	if err := l.AddDevice(0, capacity); err != nil {
		t.Fatal(err)
	}
	return l
}

// budget opens a budget with limits on device 0.
func budget(t *testing.T, l *accounting.Ledger, parent *accounting.Budget, least, most accounting.Bytes) *accounting.Budget {
	t.Helper()
	b := l.OpenBudget(parent)
	if err := l.SetLimits(b, 0, accounting.Limits{Min: least, Max: most}); err != nil {
		t.Fatal(err)
	}
	return b
}

func lease(t *testing.T, l *accounting.Ledger, b *accounting.Budget) *accounting.Lease {
	t.Helper()
	s := new(accounting.Lease)
	if err := l.OpenLease(s, b, 0, 256); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestReserve(t *testing.T) {
	type want struct {
		granted          bool
		remaining, limit accounting.Bytes
		byDevice         bool
	}
	for _, c := range []struct {
		name           string
		capacity       accounting.Bytes
		least, most    accounting.Bytes
		held, other, n accounting.Bytes // other: bytes held by a lease without a budget
		want           want
	}{
		{"C1 within the limit", 4096, 0, 1024, 0, 0, 512, want{granted: true}},
		{"C2 the exact limit", 4096, 0, 1024, 768, 0, 256, want{granted: true}},
		{"C2 the next byte", 4096, 0, 1024, 1024, 0, 1, want{remaining: 0, limit: 1024}},
		{"C3 over the limit", 4096, 0, 1024, 768, 0, 512, want{remaining: 256, limit: 1024}},
		{"the device's last byte", 1000, 0, accounting.Max, 400, 500, 100, want{granted: true}},
		{"the device is full", 1000, 0, accounting.Max, 400, 500, 101, want{remaining: 100, limit: 1000, byDevice: true}},
		{"inside memory.min on a full device", 1000, 300, 600, 100, 700, 200, want{granted: true}},
		{"beyond memory.min on a full device", 1000, 300, 600, 100, 700, 201, want{remaining: 200, limit: 1000, byDevice: true}},
		{"the most that one lease holds", accounting.Max, 0, accounting.Max, mostHeld - 1, 0, 1, want{granted: true}},
		{"beyond what one lease holds", accounting.Max, 0, accounting.Max, mostHeld - 1, 0, 2, want{remaining: 1, limit: mostHeld, byDevice: true}},
		{"a request near 2^64", accounting.Max, 0, 1000, 400, 0, accounting.Max, want{remaining: 600, limit: 1000}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := machine(t, c.capacity)
			s := lease(t, l, budget(t, l, nil, c.least, c.most))
			if r := lease(t, l, l.OpenBudget(nil)).Reserve(memory(c.other)); r != nil {
				t.Fatal(r)
			}
			if r := s.Reserve(memory(c.held)); r != nil {
				t.Fatal(r)
			}
			before := l.Device(0)
			r := s.Reserve(memory(c.n))
			if (r == nil) != c.want.granted {
				t.Fatalf("reserve: %v", r)
			}
			if r == nil {
				if got := l.Device(0).Granted - before.Granted; got != c.n || s.Granted() != c.held+c.n {
					t.Errorf("moved by %d, holds %d", got, s.Granted())
				}
				return
			}
			got := want{remaining: r.Remaining, limit: r.Limit, byDevice: r.Budget == nil}
			if got != c.want || r.Requested != c.n {
				t.Errorf("refusal %+v (%v)", got, r)
			}
			if l.Device(0) != before || s.Granted() != c.held {
				t.Errorf("a refusal moved something")
			}
		})
	}
}

func TestYieldSparesReservations(t *testing.T) {
	l := machine(t, 1000)
	rich := lease(t, l, budget(t, l, nil, 500, accounting.Max))
	asker := lease(t, l, l.OpenBudget(nil))
	for s, n := range map[*accounting.Lease]accounting.Bytes{rich: 600, asker: 400} {
		if r := s.Reserve(memory(n)); r != nil {
			t.Fatal(r)
		}
	}
	r := asker.Check(memory(200))
	if r == nil || r.Short != 200 {
		t.Fatalf("refusal: %+v", r)
	}
	if got := r.Yield(rich, 60); got != 60 {
		t.Errorf("a release of 60, of which none are reserved, gains %d", got)
	}
	if got := r.Yield(rich, 540); got != 40 {
		t.Errorf("a release of 540 after that, of which 500 are reserved, gains %d", got)
	}
}

func TestLoweredLimit(t *testing.T) {
	l := machine(t, 10000)
	job := budget(t, l, nil, 0, 1000)
	s := lease(t, l, job)
	if r := s.Reserve(memory(800)); r != nil {
		t.Fatal(r)
	}
	if err := l.SetLimits(job, 0, accounting.Limits{Min: 900, Max: 500}); err != nil {
		t.Fatal(err)
	}
	if !s.Over() || !job.Over(0) || s.Max() != 500 {
		t.Errorf("over %v, max %d", s.Over(), s.Max())
	}
	if got := l.Device(0).Committed; got != 800 {
		t.Errorf("a memory.min above memory.max reserves %d", got)
	}
	if r := s.Reserve(memory(1)); r == nil || r.Remaining != 0 || r.Short != 301 {
		t.Errorf("over, and granted: %+v", r)
	}
	s.Release(accounting.Memory, 300)
	if s.Over() {
		t.Error("still over at the limit")
	}
}

func TestB4StreamsCap(t *testing.T) {
	for _, c := range []struct{ most, want int }{{256, 256}, {1, 1}, {0, 1}, {-7, 1}} {
		l := machine(t, 0)
		s := new(accounting.Lease)
		if err := l.OpenLease(s, l.OpenBudget(nil), 0, c.most); err != nil {
			t.Fatal(err)
		}
		if s.StreamsMax() != c.want || s.Reserve(streams(c.want)) != nil || s.Reserve(streams(1)) == nil {
			t.Errorf("cap of %d: %d streams, max %d", c.most, s.Streams(), s.StreamsMax())
		}
		if got := s.Release(accounting.Streams, 1<<40); got != accounting.Bytes(c.want) || l.Device(0).Streams != 0 {
			t.Errorf("gave back %d", got)
		}
	}
}

func TestErrors(t *testing.T) {
	l := machine(t, 1)
	b := l.OpenBudget(nil)
	inner := l.OpenBudget(b)
	openErr := l.OpenLease(new(accounting.Lease), b, 7, 1)
	for what, err := range map[string]struct{ got, want error }{
		"a device twice":        {l.AddDevice(0, 1), accounting.ErrExists},
		"capacity of no device": {l.SetCapacity(7, 1), accounting.ErrNoDevice},
		"a cap under a cap":     {l.SetCaps(l.OpenCap(), l.OpenCap()), accounting.ErrCycle},
		"a budget for a cap":    {l.SetCaps(l.OpenBudget(nil), l.OpenBudget(nil)), accounting.ErrCycle},
		"limits on no device":   {l.SetLimits(b, 7, accounting.Limits{}), accounting.ErrNoDevice},
		"lease on no device":    {openErr, accounting.ErrNoDevice},
		"close in use":          {l.CloseBudget(b), accounting.ErrBusy},
		"under itself":          {l.MoveBudget(b, inner), accounting.ErrCycle},
	} {
		if !errors.Is(err.got, err.want) {
			t.Errorf("%s: %v, want %v", what, err.got, err.want)
		}
	}
}

func TestHuman(t *testing.T) {
	for b, want := range map[accounting.Bytes]string{
		0: "0 bytes", 1: "1 byte", 1023: "1023 bytes", 1024: "1 KiB", 512 * mib: "512 MiB",
		1536 * mib: "1.5 GiB", 1024*mib - 1: "1023 MiB", 80<<30 - 1: "79.9 GiB",
		accounting.Max: "max", accounting.Max - 1: "15.9 EiB",
	} {
		if got := b.Human(); got != want {
			t.Errorf("%d: %q, want %q", b, got, want)
		}
	}
}

func TestSaturation(t *testing.T) {
	if got := accounting.Max.Plus(1); got != accounting.Max {
		t.Errorf("max + 1 = %d", got)
	}
	if got := accounting.Bytes(3).Less(4); got != 0 {
		t.Errorf("3 − 4 = %d", got)
	}
	if got := accounting.Bytes(3).Plus(4).Less(2); got != 5 {
		t.Errorf("3 + 4 − 2 = %d", got)
	}
}

// TestOverheadLowersTheCapacity checks that overhead of leases, such as contexts, and overhead that is reserved for a budget lower the
// capacity of the device. Of a reservation and the overhead of the leases below it only the larger counts.
func TestOverheadLowersTheCapacity(t *testing.T) {
	l := machine(t, 1000)
	job := l.OpenBudget(nil)
	process := l.OpenBudget(job)
	held := lease(t, l, process)
	left := func(want accounting.Bytes) {
		t.Helper()
		if d := l.Device(0); d.Limit != want || d.Overhead != 1000-want || held.Room() != want {
			t.Errorf("capacity %d with %d beside, room for %d; want %d", d.Limit, d.Overhead, held.Room(), want)
		}
	}
	keep := func(b *accounting.Budget, n accounting.Bytes) {
		t.Helper()
		if err := l.ReserveOverhead(b, 0, n); err != nil {
			t.Fatal(err)
		}
	}
	left(1000)
	keep(job, 100)
	left(900)
	held.SetOverhead(60)
	left(900)
	if all, unused := job.ReservedOverhead(0); all != 100 || unused != 40 {
		t.Errorf("%d of %d are unused", unused, all)
	}
	keep(process, 80)
	left(900)
	if grows := l.OverheadGrowth(process, 0, 130); grows != 30 {
		t.Errorf("grows by %d", grows)
	}
	if r := l.CheckMin(process, 0, 870, 130); r != nil {
		t.Errorf("%+v", r)
	}
	if r := l.CheckMin(process, 0, 871, 130); r == nil || r.Short != 1 || r.Remaining != 870 || r.Limit != 870 {
		t.Errorf("%+v", r)
	}
	held.SetOverhead(150)
	left(850)
	if r := held.Reserve(accounting.OnDevice(851)); r == nil || r.Limit != 850 {
		t.Errorf("%+v", r)
	}
	if r := held.Reserve(accounting.OnDevice(850)); r != nil {
		t.Errorf("%+v", r)
	}
	held.SetOverhead(160)
	if r := l.Overload(0); r == nil || r.Short != 10 || r.Limit != 840 {
		t.Errorf("%+v", r)
	}
	held.Close()
	if d := l.Device(0); d.Limit != 900 || d.Committed != 0 {
		t.Errorf("%+v", d)
	}
	keep(job, 0)
	if d := l.Device(0); d.Limit != 920 {
		t.Errorf("%+v", d)
	}
	if err := l.CloseBudget(process); err != nil {
		t.Fatal(err)
	}
	if d := l.Device(0); d.Limit != 1000 {
		t.Errorf("%+v", d)
	}
}
