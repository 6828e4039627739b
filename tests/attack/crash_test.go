package attack

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This test holds that no byte is lost or counted twice when the daemon is killed again and again while programs
// allocate and free. The oracle is the driver's count for each process. settle, which waits until all programs have
// resumed, is used by the other files, too.

// pause waits for d. Callers choose d at random to kill a process at an arbitrary moment, and do not depend on that
// moment.
func pause(d time.Duration) { <-time.After(d) }

// TestDaemonKilledUnderLoad kills the daemon at random moments while twenty programs
// allocate and free memory close to the limit of their budget. A call may fail only for lack of memory.
// When the programs pause, every lease equals what the driver holds for its process.
func TestDaemonKilledUnderLoad(t *testing.T) {
	t.Parallel()
	const programs = 20
	m := machine(t, rig.Options{Devices: "2G,2G", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"},
		Config: "schema_version = 1\n[defaults]\nscope = \"user\"\nmemory.max = \"1G\"\non_loss = \"closed\"\n"})
	r := random(t)
	crowd := make([]*rig.Program, programs)
	for i := range crowd {
		crowd[i] = cudaprog(m, "--device", fmt.Sprint(i%2), "-")
		say(t, crowd[i], fmt.Sprintf("alloc kept %d", 1000_003+i), "ok")
		say(t, crowd[i], "stream kept", "ok")
	}
	for round := range 20 * *scale {
		var wg sync.WaitGroup
		for i, p := range crowd {
			wg.Go(func() {
				if got := p.Ask(fmt.Sprintf("threads 3 40 100M %d", round*1000+i+1)); !strings.HasPrefix(got, "ok") {
					t.Errorf("threads: %s", got)
				}
				for n := range 5 {
					create, destroy := p.Ask(fmt.Sprintf("stream s%d", n)), p.Ask(fmt.Sprintf("streamdestroy s%d", n))
					if create != "ok" || destroy != "ok" {
						t.Errorf("a stream: %s, %s", create, destroy)
					}
				}
			})
		}
		for range 1 + r.IntN(3) {
			pause(time.Duration(r.IntN(30_000)) * time.Microsecond)
			m.Kill()
			m.Start()
		}
		wg.Wait()
		if t.Failed() {
			return
		}
		settle(t, m, crowd)
	}
	if n := m.Snapshot().Stats.ClampedWords; n != 0 {
		t.Errorf("%d credit words of honest programs were clamped", n)
	}
	for _, p := range crowd {
		p.End()
	}
	m.AllGone()
}

// settle sends a request from each program, so that each resumes its session with the new daemon,
// and then compares all leases. A program that lost its daemon looks for the new one once a second.
func settle(t *testing.T, m *rig.Machine, programs []*rig.Program) {
	t.Helper()
	wrong := ""
	t.Cleanup(func() {
		if wrong != "" {
			t.Log(wrong)
		}
	})
	rig.Eventually(t, "all programs have resumed", func() bool {
		for _, p := range programs {
			p.Ask("info") // asks the daemon, and moves nothing
		}
		wrong = disagreement(m)
		return wrong == ""
	})
	sane(t, m)
}
