package processes

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// TestJumps: a signal handler that jumps out of the library, wherever that is, costs the
// program bytes of its own budget at most.
func TestJumps(t *testing.T) {
	t.Parallel()
	jumps(t, 200)
}

// jumps has two programs jump so often. By the driver's count neither ever has more than
// its budget, nor more than the daemon believes; also after a daemon that was told by the
// program what that holds. And it goes on: no call waits for what was left behind.
func jumps(t *testing.T, often int) {
	const budget = 2 << 30
	for _, kind := range []string{"blocks", "async"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			m := rig.New(t, rig.Options{Devices: "8G", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}})
			words := story(t, []string{"jumps", strconv.Itoa(often), kind})
			env := append(m.PreloadEnv(), fmt.Sprintf("GPUARB_MEMORY=%d", budget))
			tell(m, env, words, func(at string, _ *rig.Program) {
				for _, h := range m.Held() {
					if l := m.Lease(h.PID, 0); uint64(l.Used) < h.Bytes || h.Bytes > budget {
						t.Errorf("%s: the driver counts %d bytes, the daemon %d", at, h.Bytes, l.Used)
					}
				}
				if at == "it has jumped" {
					m.Kill()
					m.Start()
				}
			})
			allGone(m)
		})
	}
}
