package bench

import (
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// BenchmarkTop is the processor time of `gpuarb top` on a real terminal with a thousand leases, as a
// table and as a tree: it asks, and draws, once a second.
func BenchmarkTop(b *testing.B) {
	m := rig.New(b, rig.Options{Devices: devices, NoMount: true})
	crowd(b, m, 1000, 1)
	for _, flag := range []string{"--tree=false", "--tree"} {
		b.Run(flag[2:], func(b *testing.B) {
			top := m.Terminal(120, 40, `exec "$G" top `+flag)
			top.Await("1000 leases")
			before := cpuOf(b, top.PID())
			for b.Loop() {
				time.Sleep(5 * time.Second)
			}
			b.ReportMetric(float64((cpuOf(b, top.PID())-before).Milliseconds())/b.Elapsed().Seconds(), "cpu-ms/s")
			b.ReportMetric(0, "ns/op") // says nothing
			top.Press("q")
		})
	}
}
