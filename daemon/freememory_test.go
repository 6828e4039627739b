package daemon

import (
	"os"
	"testing"

	"github.com/gpuarb/gpuarb/ipc"
)

// This file checks the free memory on a client's lease page: the page agrees with the daemon's answer to a request
// for the free memory, follows grants and limits, and says nothing when the client must ask again. freememory.go
// publishes the figures.

// freeOnPage returns the free memory on a client's page; ok is false if the client must ask the daemon.
func freeOnPage(t *testing.T, s *ipc.ShimSession) (free, used, total uint64, ok bool) {
	t.Helper()
	word := ipc.CreditWord(s.Page.CreditWord(0).Load())
	shownRoom, shownUsed, shownTotal, at := s.Page.Shown(0)
	room := ipc.CreditWord(shownRoom.Load())
	if uint64(room)&ipc.ShownTold == 0 || room.Epoch() != word.Epoch() {
		return 0, 0, 0, false
	}
	if now := monotonicMillis(); at.Load() > now {
		t.Errorf("shown at %d, and it is %d", at.Load(), now)
	}
	return room.Credit() + word.Credit(), shownUsed.Load() - word.Credit(), shownTotal.Load(), true
}

// TestShown checks the free memory on the page of a client that has asked for it. The client's own grants appear at
// once, those of other clients in the next round. After a change of limits the client must ask again.
func TestShown(t *testing.T) {
	const gib = 1 << 30
	b := newBench(t, 8*gib)
	s := b.session()
	room := func() {
		t.Helper()
		var rep ipc.RoomReply
		if err := ipc.Call(t.Context(), s.Main, ipc.TypeRoom, &ipc.RoomRequest{Device: b.machine.list[0].UUIDBytes}, &rep); err != nil {
			t.Fatal(err)
		}
		free, used, total, ok := freeOnPage(t, s)
		if !ok || free != rep.Room || used != rep.Used || total != rep.Total {
			t.Errorf("shown are %d free, %d used of %d (%v), answered %+v", free, used, total, ok, rep)
		}
	}
	want := func(free, used, total uint64) {
		t.Helper()
		if f, u, of, ok := freeOnPage(t, s); !ok || f != free || u != used || of != total {
			t.Errorf("shown are %d free, %d used of %d (%v), want %d, %d, %d", f, u, of, ok, free, used, total)
		}
	}
	if _, _, _, ok := freeOnPage(t, s); ok {
		t.Error("it is shown something before it asked")
	}
	room()
	want(8*gib, 0, 8*gib)
	if err := takeBytes(s, 0, 3*gib); err != nil {
		t.Fatal(err)
	}
	want(5*gib, 3*gib, 8*gib)
	s.Page.GiveCredit(0, gib) // the client frees memory
	want(6*gib, 2*gib, 8*gib)

	b.child(4 * gib)
	b.until("a round shows what another took", func() bool { free, _, _, ok := freeOnPage(t, s); return ok && free == 2*gib })

	if err := b.limit(requester{privileged: true}, &ipc.LimitRequest{Target: ipc.LimitProcess, ID: uint64(os.Getpid()), Set: ipc.SetMax, Device: 0, Max: 3 * gib, Min: ipc.NoLimit}, ""); err != nil {
		t.Fatal(err)
	}
	if _, _, _, ok := freeOnPage(t, s); ok {
		t.Error("it is shown what it was told before its limit changed")
	}
	room()
	want(gib, 2*gib, 3*gib)

	for range publishRounds {
		b.publishFree()
	}
	if _, _, _, ok := freeOnPage(t, s); ok {
		t.Errorf("it is still shown after %d rounds without a question", publishRounds)
	}
	room()
	if err := b.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, _, _, ok := freeOnPage(t, s); ok {
		t.Error("it is shown what a daemon knew that has stopped")
	}
}
