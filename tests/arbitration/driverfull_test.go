package arbitration

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold that every way to take a device's memory is asked for once more if the driver has none for it: a program without the
// library has taken memory that no reading has shown. The oracle is the driver's own count of the requests that found too little memory,
// and what it then gives. newcontext_test.go has plain memory and the first context.

// taken are the commands by which cudaprog takes 6 GiB, each by another function of the driver. Managed memory is not
// among them: the daemon needs no free memory of the device to admit it, so that the program does not wait after the driver's refusal.
var taken = map[string]string{
	"cuMemAlloc":              "alloc a 6G",
	"cuMemAllocPitch":         "pitch a 65536 98304",
	"cuMemAllocAsync":         "allocasync a 6G 0",
	"cuMemAllocFromPoolAsync": "allocpool a 6G 0",
	"cuMemCreate":             "create a 6G",
	"cuArrayCreate":           "array a 32768 49152 32 1",
	"cuArray3DCreate":         "array3d a 1024 1024 1536 32 1 0",
	"cuMipmappedArrayCreate":  "mipmap a 1024 1024 1536 32 1 0 1",
}

// beside returns a machine of 8 GiB on which a program without the library is about to take memory that no reading shows.
func beside(t *testing.T) (m *rig.Machine, stranger *rig.Program) {
	m = rig.New(t, rig.Options{Devices: "8G", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=64M"}})
	return m, m.Interact(m.Command(m.Env(), rig.Build(t, "programs/cudaprog-dlsym")))
}

// TestTheDriverIsAskedAgain: the driver refuses what was admitted, by each function. The program may wait: it waits until the device shows
// room, and goes on.
func TestTheDriverIsAskedAgain(t *testing.T) {
	t.Parallel()
	for name, command := range taken {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, stranger := beside(t)
			p := cudaprog(m, "--wait")
			p.Want("alloc first 1M", "ok")
			m.Sim("hang", "0")
			stranger.Want("alloc a 5G", "ok")
			p.Tell(command)
			rig.Eventually(t, "the driver has refused", func() bool { return m.SimNumber("lacked", "0") >= 1 })
			m.Sim("answer", "0")
			waiting(m, 1)
			stranger.End()
			if got := p.Line(); !strings.Contains(got, " a ok") {
				t.Errorf("%q", got)
			}
			if said := p.End(); strings.Contains(said, "out of memory") {
				t.Errorf("it says %q", said)
			}
			idle(m)
		})
	}
}

// TestTheDriverRefusesEachForGood: the driver refuses each function twice, although the device shows room. Its error goes through, with the
// programs that the device shows, and nothing stays charged.
func TestTheDriverRefusesEachForGood(t *testing.T) {
	t.Parallel()
	all := maps.Clone(taken)
	all["cuMemAllocManaged"] = "managed a 6G"
	for name, command := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := rig.New(t, rig.Options{Devices: "8G", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=64M"}})
			p := cudaprog(m, "--wait")
			p.Want("alloc first 1G", "ok")
			m.Sim("fail", name+"*:*:2")
			p.Want(command, "err 2")
			m.Sim("clear")
			p.Want("alloc b 6G", "ok")
			if said, want := p.End(), "the driver has no room for 6 GiB that the budgets allow; the device shows: "; !strings.Contains(said, want) {
				t.Errorf("it says %q, not %q", said, want)
			}
			idle(m)
		})
	}
}

// TestTheDriverHasNoRoomForMoreContexts: the driver refuses contexts of each kind, of a program that has one already.
func TestTheDriverHasNoRoomForMoreContexts(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"context c", "green c", "primary c 0"} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			m, stranger := beside(t)
			p := cudaprog(m, "--wait")
			m.Sim("hang", "0")
			stranger.Want("alloc a 8G", "err 2")
			stranger.Want("alloc a 8064M", "ok") // the contexts of both take the rest
			p.Tell(command)
			rig.Eventually(t, "the driver has refused", func() bool { return m.SimNumber("lacked", "0") >= 2 })
			m.Sim("answer", "0")
			waiting(m, 1)
			stranger.End()
			if got := p.Line(); !strings.HasSuffix(got, " c ok") {
				t.Errorf("%q", got)
			}
			p.End()
			idle(m)
		})
	}
}

// TestGreenContextsAreRefusedForGood: the driver refuses a green context twice. Its error goes through, with the programs that the device
// shows.
func TestGreenContextsAreRefusedForGood(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=64M"}})
	p := cudaprog(m, "--wait")
	p.Want("alloc first 1G", "ok")
	m.Sim("fail", "cuGreenCtxCreate:*:2")
	p.Want("green g", "err 2")
	m.Sim("clear")
	p.Want("green g", "ok")
	pid := p.PID()
	said := p.End()
	if want := "1 request refused, for a context: the driver of GPU 0 had no room for it"; !strings.Contains(said, want) {
		t.Errorf("it says %q, not %q", said, want)
	}
	if want := fmt.Sprintf("the driver has no room for a context that the budgets allow; the device shows: %s's cudaprog-dlsym[%d] 1", rig.User(), pid); !strings.Contains(said, want) {
		t.Errorf("it says %q, not %q", said, want)
	}
	idle(m)
}

// TestManyThreadsAreRefusedAtOnce: the driver refuses several threads of a program. Each waits for itself, and all go on.
func TestManyThreadsAreRefusedAtOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ command, answer string }{
		{"together 6 800M", "together ok 6 0"}, {"retainthreads 6", "retainthreads ok 6 0"}, {"greenthreads 6", "greenthreads ok 6 0"},
	} {
		t.Run(c.command, func(t *testing.T) {
			t.Parallel()
			m, stranger := beside(t)
			p := cudaprog(m, "--wait")
			m.Sim("hang", "0")
			stranger.Want("alloc a 8064M", "ok") // the contexts of both take the rest
			p.Tell(c.command)
			rig.Eventually(t, "the driver has refused", func() bool { return m.SimNumber("lacked", "0") >= 1 })
			m.Sim("answer", "0")
			rig.Eventually(t, "requests wait", func() bool { return len(m.Snapshot().Queue) > 0 })
			stranger.End()
			if got := p.Line(); got != c.answer {
				t.Errorf("%q", got)
			}
			p.End()
			idle(m)
		})
	}
}

// aside returns a machine and a program that may wait, one of whose threads waits after the driver's refusal.
func aside(t *testing.T) (m *rig.Machine, p, stranger *rig.Program) {
	m, stranger = beside(t)
	p = cudaprog(m, "--wait")
	m.Sim("hang", "0")
	stranger.Want("alloc a 8064M", "ok")
	p.Want("retainaside", "ok")
	rig.Eventually(t, "the driver has refused", func() bool { return m.SimNumber("lacked", "0") >= 1 })
	m.Sim("answer", "0")
	waiting(m, 1)
	return m, p, stranger
}

// TestForkWhileAThreadWaits: a program forks while one of its threads waits after the driver's refusal. The child ends, and the thread goes
// on when there is room.
func TestForkWhileAThreadWaits(t *testing.T) {
	t.Parallel()
	m, p, stranger := aside(t)
	for range 20 {
		p.Tell("fork")
		p.Tell("alloc c 1M") // in the child, which has no context
		p.Tell("join")
		if got := p.Line(); got != "alloc c err 3" {
			t.Errorf("in the child: %q", got)
		}
		if got := p.Line(); got != "fork ok 0" {
			t.Errorf("%q", got)
		}
	}
	waiting(m, 1)
	stranger.End()
	waiting(m, 0)
	rig.Eventually(t, "the thread has its context", func() bool { return m.Lease(p.PID(), m.First()).Contexts == 2 })
	p.Want("alloc a 1G", "ok")
	p.End()
	idle(m)
}

// TestEndWhileAThreadWaits: a program is killed, or its thread is ended, while it waits after the driver's refusal. No request stays in the queue, and no bytes stay charged.
func TestEndWhileAThreadWaits(t *testing.T) {
	t.Parallel()
	t.Run("killed", func(t *testing.T) {
		t.Parallel()
		m, p, stranger := aside(t)
		p.Tell("kill 9")
		waiting(m, 0)
		stranger.End()
		p.Wait()
		idle(m)
	})
	t.Run("thread", func(t *testing.T) {
		t.Parallel()
		m, p, stranger := aside(t)
		p.Want("retainleave", "ok")
		stranger.End()
		p.Want("retainthreads 4", "ok 4 0")
		p.Want("alloc a 7G", "ok")
		p.End()
		idle(m)
	})
}

// TestTheWaitAfterARefusalTimesOut: a program may wait for a second. Then the driver's error goes through, and the program goes on.
func TestTheWaitAfterARefusalTimesOut(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"create a 6G", "allocasync a 6G 0", "green a"} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			m, stranger := beside(t)
			p := cudaprog(m, "--wait=1s")
			p.Want("alloc first 1M", "ok")
			m.Sim("hang", "0")
			stranger.Want("alloc a 8063M", "ok")
			p.Tell(command)
			rig.Eventually(t, "the driver has refused", func() bool { return m.SimNumber("lacked", "0") >= 1 })
			m.Sim("answer", "0")
			if got := p.Line(); !strings.HasSuffix(got, " a err 2") {
				t.Errorf("%q", got)
			}
			stranger.End()
			if said := p.End(); !strings.Contains(said, "unmanaged") {
				t.Errorf("it says %q", said)
			}
			idle(m)
		})
	}
}
