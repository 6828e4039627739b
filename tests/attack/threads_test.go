package attack

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This test holds how many thread numbers a client can use if each thread needs a slot, and that the next number is
// refused with that bound.

// TestThreadNumbers: if each thread needs a slot, a client can use any thread numbers. The daemon remembers as many as
// docs/threat-model.md says, also over a restart. It refuses the next number with a message that names it, and forgets
// a number with its last object.
func TestThreadNumbers(t *testing.T) {
	t.Parallel()
	const most = 1024
	m := machine(t, rig.Options{Devices: "1G", NoMount: true})
	c, err := ipc.Dial(t.Context(), m.Socket)
	check(t, err)
	s, err := c.HelloShim(t.Context(), ipc.HelloRequest{Memory: ipc.NoLimit, SlotScope: ipc.ScopeThread})
	check(t, err)
	at, err := s.Main.Attach(t.Context(), uuid(m, 0))
	check(t, err)
	hold := func(c *ipc.Client, thread, n int) error {
		return ipc.CallWaiting(t.Context(), c, ipc.TypeContext, &ipc.ContextRequest{Slot: at.Slot, Count: int32(n), Thread: uint32(thread), Flags: ipc.FlagHold},
			&ipc.ContextReply{}, ipc.Wait{})
	}
	for n := 1; n <= most; n++ {
		check(t, hold(s.Main, n, 1))
	}
	full := func(c *ipc.Client) {
		t.Helper()
		for _, n := range []int{most + 1, 8000, 1<<31 - 1} {
			if err := hold(c, n, 1); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("thread %d is refused", n)) {
				t.Errorf("thread %d: %v", n, err)
			}
		}
		if _, err := c.Alloc(t.Context(), ipc.AllocRequest{Slot: at.Slot, Kind: ipc.MemoryPlain, Bytes: 1, Thread: most + 1}); err == nil {
			t.Error("memory was granted to one session more")
		}
	}
	full(s.Main)
	m.Kill()
	m.Start()
	again, err := ipc.Dial(t.Context(), m.Socket)
	check(t, err)
	check(t, s.Resume(t.Context(), again, []ipc.ResumeLease{{Device: uuid(m, 0), Slot: at.Slot}}))
	full(again)
	check(t, hold(again, 500, -1))
	check(t, hold(again, most+1, 1))
	if err := hold(again, 500, 1); err == nil {
		t.Error("thread 500 is there twice")
	}
	for n := 1; n <= most+1; n++ {
		if n != 500 {
			check(t, hold(again, n, -1))
		}
	}
	if l := m.Lease(os.Getpid(), 0); l.Slot {
		t.Errorf("no thread has an object, but the process has a slot: %+v", l)
	}
	check(t, again.Bye(context.Background()))
}
