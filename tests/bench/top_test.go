package bench

import (
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// BenchmarkTop is the processor time of `gpuarb top` on a real terminal with a thousand leases: as a
// table and as a tree, and with an interval that holds whatever a look costs.
func BenchmarkTop(b *testing.B) {
	m := rig.New(b, rig.Options{Devices: devices, NoMount: true})
	crowd(b, m, 1000, 1)
	for _, c := range []struct{ name, flags string }{{"table", ""}, {"tree", "--tree"}, {"interval=1s", "--interval=1s"}} {
		b.Run(c.name, func(b *testing.B) {
			top := m.Terminal(120, 40, `exec "$G" top `+c.flags)
			top.Await("1000 leases")
			before := cpuOf(b, top.PID())
			for b.Loop() {
				time.Sleep(2 * time.Second)
			}
			b.ReportMetric(float64((cpuOf(b, top.PID())-before).Milliseconds())/b.Elapsed().Seconds(), "cpu-ms/s")
			b.ReportMetric(0, "ns/op") // says nothing
			top.Press("q")
		})
	}
}
