package daemon

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/daemon/fair"
	"github.com/gpuarb/gpuarb/gpufs"
	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/internal/statefile"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/shim"
)

// This file checks changes of live limits: whole or not at all, kept over a crash and a restart, bounded per user,
// and interruptible. cgroups_test.go has the limits of cgroups, package fair the rule on how often a user may change
// limits.

// session opens one more session of the test's own process, with a lease on device 0.
func (b *bench) session() *ipc.ShimSession {
	b.t.Helper()
	c, err := ipc.Dial(b.t.Context(), b.socket())
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = c.Close() })
	s, err := c.HelloShim(b.t.Context(), ipc.HelloRequest{Memory: ipc.NoLimit, StreamReserve: ipc.NoLimit})
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := c.Attach(b.t.Context(), b.machine.list[0].UUIDBytes); err != nil {
		b.t.Fatal(err)
	}
	return s
}

// TestLimitsOfAllSessionsOrNone reserves memory for a process with two sessions, only one of which has room. Both
// sessions keep their earlier limits.
func TestLimitsOfAllSessionsOrNone(t *testing.T) {
	b := newBench(t, 1<<30)
	b.session()
	b.session()
	reserve := func(bytes uint64) error {
		return b.limit(requester{privileged: true}, &ipc.LimitRequest{Target: ipc.LimitProcess, ID: uint64(os.Getpid()), Set: ipc.SetMin, Device: 0, Min: bytes, Max: ipc.NoLimit}, "")
	}
	if err := reserve(700 << 20); err == nil {
		t.Fatal("1400 MiB are reserved on a device of 1024")
	}
	if got := b.Snapshot().Devices[0].Committed; got != 0 {
		t.Errorf("the change was refused, and %d bytes are reserved", got)
	}
	if err := reserve(400 << 20); err != nil {
		t.Fatal(err)
	}
	if got := b.Snapshot().Devices[0].Committed; got != 800<<20 {
		t.Errorf("%d bytes are reserved for two sessions", got)
	}
}

// TestKeptLimitIsOneOrTheOther checks that a daemon never writes to a limit's record while the record is in force, so
// that no crash leaves half a record. If a daemon left an old and a new record for one device, the next daemon
// applies the one with more limits last, so that this one counts.
func TestKeptLimitIsOneOrTheOther(t *testing.T) {
	b := newBench(t, 1<<30)
	c := b.child(1 << 20)
	change := func(set uint32, bytes uint64, share uint32) {
		t.Helper()
		r := &ipc.LimitRequest{Target: ipc.LimitProcess, ID: uint64(c.pid), Set: set, Device: 0, Max: bytes, MaxShare: share, Min: 1 << 20}
		if err := b.limit(requester{privileged: true}, r, ""); err != nil {
			t.Fatal(err)
		}
	}
	only := func() (index int, row statefile.Limit) {
		t.Helper()
		index = -1
		b.file.Limits.Each(func(i int, r *statefile.Limit) {
			if index >= 0 {
				t.Error("there are two records")
			}
			index, row = i, *r
		})
		return index, row
	}
	change(ipc.SetMax, 1<<28, 0)
	b.lock()
	at, was := only()
	b.unlock()
	change(ipc.SetMax|ipc.SetMin, ipc.NoLimit, 500)
	b.lock()
	now, _ := only()
	then := *b.file.Limits.At(at)
	then.Live = was.Live
	if now == at || then != was {
		t.Errorf("record %d was %+v, and was written to while it was in force: %+v", at, was, then)
	}
	// The records that a daemon leaves if it dies between the two steps.
	again, row, err := b.file.Limits.New()
	if err != nil {
		t.Fatal(err)
	}
	*row = was
	b.file.Limits.Commit(again)
	b.unlock()
	b.restart()
	if l := b.lease(c.pid, 0); l.Budget != 1<<29 || l.Min != 1<<20 {
		t.Errorf("after a restart: %+v", l)
	}
	b.lock()
	defer b.unlock()
	if _, r := only(); r.Set != ipc.SetMax|ipc.SetMin || shim.SizeOf(r.Max, r.MaxPerMille) != (accounting.Size{PerMille: 500}) {
		t.Errorf("%+v", r)
	}
}

// TestAFullTableKeepsALimitThatIsChangedAgain checks that the new record replaces the old one in a full table, so
// that the limit survives the daemon.
func TestAFullTableKeepsALimitThatIsChangedAgain(t *testing.T) {
	b := newBench(t, 1<<30)
	c := b.child(1 << 20)
	change := func(bytes uint64) {
		t.Helper()
		r := &ipc.LimitRequest{Target: ipc.LimitProcess, ID: uint64(c.pid), Set: ipc.SetMax, Device: 0, Max: bytes}
		if err := b.limit(requester{privileged: true}, r, ""); err != nil {
			t.Fatal(err)
		}
	}
	change(1 << 28)
	b.lock()
	for {
		if _, _, err := b.file.Limits.New(); err != nil {
			break
		}
	}
	b.unlock()
	change(1 << 27)
	b.restart()
	if l := b.lease(c.pid, 0); l.Budget != 1<<27 {
		t.Errorf("after a restart: %d bytes, want %d", l.Budget, 1<<27)
	}
}

// TestALongChangeIsCounted checks that a long change counts as several, for both ways of changing a limit.
func TestALongChangeIsCounted(t *testing.T) {
	b := newClockedBench(t, 1<<30)
	for uid, change := range map[uint32]func(uint32) error{
		4242: func(uid uint32) error {
			return b.Set(t.Context(), gpufs.Setting{Of: rules.Owner{Kind: rules.OfDevice}, Device: 0, Name: "slots.max", Value: "1", UID: uid})
		},
		4243: func(uid uint32) error {
			_ = b.awaitChange(t.Context(), requester{uid: uid})
			return b.limit(requester{uid: uid}, &ipc.LimitRequest{Target: ipc.LimitDevice, Set: ipc.SetSlots, Slots: 1}, "")
		},
	} {
		b.clock.creep(2 * fair.ChangesPerSecond * fair.ChangeCost)
		if err := change(uid); err == nil {
			t.Error("not refused")
		}
		b.clock.creep(0)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range 64 { // if the wait is over already, select takes that branch only in half of the cases
			if b.awaitChange(ctx, requester{uid: uid}) == nil {
				t.Fatalf("user %d need not wait before the next change", uid)
			}
		}
	}
}

// TestAWriteThatWaitsIsInterrupted checks that a signal to a writing process ends its wait, and that the limit stays
// unchanged.
func TestAWriteThatWaitsIsInterrupted(t *testing.T) {
	const uid = 4242
	b := newClockedBench(t, 1<<30)
	write := func(ctx context.Context) error {
		return b.Set(ctx, gpufs.Setting{Of: rules.Owner{Kind: rules.OfDevice}, Device: 0, Name: "slots.max", Value: "1", UID: uid})
	}
	for range fair.ChangesPerSecond { // refused changes count as well
		if err := write(t.Context()); !errors.Is(err, unix.EPERM) {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := write(ctx); !errors.Is(err, unix.EINTR) {
		t.Errorf("an interrupted write: %v, want EINTR", err)
	}
	b.clock.Advance(time.Second)
	if err := write(t.Context()); !errors.Is(err, unix.EPERM) {
		t.Errorf("a second later: %v, want EPERM", err)
	}
}

// TestAWriteToAStoppingDaemon checks that a write during Stop gets the error of a stopped daemon, and not that of an
// ended owner.
func TestAWriteToAStoppingDaemon(t *testing.T) {
	b := newBench(t, 1<<30)
	b.session()
	b.cancel()
	err := b.Set(t.Context(), gpufs.Setting{Of: rules.Owner{Kind: rules.OfProcess, ID: uint64(os.Getpid())}, Device: 0, Name: "memory.max", Value: "4M"})
	if !errors.Is(err, unix.ENOTCONN) || errors.Is(err, unix.ENODEV) {
		t.Errorf("%v", err)
	}
}

// TestKindsOfOwners checks that owners of limits have equal numbers in messages and in the state file.
func TestKindsOfOwners(t *testing.T) {
	for kind, target := range map[rules.Kind]uint32{rules.OfProcess: ipc.LimitProcess, rules.OfJob: ipc.LimitJob, rules.OfDevice: ipc.LimitDevice,
		rules.OfUser: ipc.LimitUser, rules.OfRule: ipc.LimitRule, rules.OfCgroup: ipc.LimitCgroup} {
		if uint32(kind) != target {
			t.Errorf("%d is %d on the wire", kind, target)
		}
	}
}

// TestLimitsOfAPageEndWithItsSession has a client spoil the limit in its page and the daemon lose the state file. It checks that the limit counts
// for the session with the page, and not for the session that the same process opens while the lease of the first one drains.
func TestLimitsOfAPageEndWithItsSession(t *testing.T) {
	b := newBench(t, 1<<30)
	b.machine.set(func() { b.machine.held[0][os.Getpid()] = 1 << 20 }) // the device never says that the lease's memory is back
	spoiled := b.session()
	spoiled.Page.Limit(0).Store(574)
	if err := b.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(b.options().Socket + ".state"); err != nil {
		t.Fatal(err)
	}
	b.start()
	c, err := ipc.Dial(t.Context(), b.socket())
	if err != nil {
		t.Fatal(err)
	}
	if err := spoiled.Resume(t.Context(), c, []ipc.ResumeLease{{Device: b.machine.list[0].UUIDBytes}}); err != nil {
		t.Fatal(err)
	}
	if l := b.lease(os.Getpid(), 0); l.Budget != 574 {
		t.Fatalf("the limit of the page is not in force: %+v", l)
	}
	if err := spoiled.Main.Bye(t.Context()); err != nil {
		t.Fatal(err)
	}
	if l := b.lease(os.Getpid(), 0); l.State != figures.StateDraining {
		t.Fatalf("the lease of the first session does not drain: %+v", l)
	}
	next := b.session()
	if got := next.Page.Limit(0).Load(); got != 1<<30 {
		t.Errorf("the next session may hold %d bytes", got)
	}
	if err := takeBytes(next, 0, 4096); err != nil {
		t.Error(err)
	}
}
