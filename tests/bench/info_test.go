package bench

import (
	"fmt"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// BenchmarkMemGetInfo is a program's question what is free, CUDA's and NVML's, under the library and without it, on
// the simulated driver. In a row, and each a while after the last, where an answer that was kept
// has become too old and the page has to have it.
func BenchmarkMemGetInfo(b *testing.B) {
	m := rig.New(b, rig.Options{Devices: "8G", NoMount: true})
	program := rig.Build(b, "programs/cudaprog-dlsym")
	shim := start(b, m.Gpuarb("run", "--memory", "1G", "--", program))
	bare := start(b, m.Command(m.Env(), program))
	shim.ask(b, "alloc a 1M")
	bare.ask(b, "alloc a 1M")
	for by, question := range map[string]string{"cuda": "infos", "nvml": "nvmlinfos"} {
		b.Run("by="+by, func(b *testing.B) { memGetInfo(b, question, shim, bare) })
	}
}

func memGetInfo(b *testing.B, question string, shim, bare *process) {
	infos := func(b *testing.B, p *process, n int) (ns float64) {
		b.Helper()
		var count int
		answer := p.ask(b, fmt.Sprint(question, " ", n))
		if _, err := fmt.Sscanf(answer, question+" ok %d %f", &count, &ns); err != nil || count != n {
			b.Fatalf("%q: %v", answer, err)
		}
		return ns
	}
	b.Run("in=row", func(b *testing.B) {
		under, without := infos(b, shim, b.N), infos(b, bare, b.N)
		b.ReportMetric(under, "ns/op")
		b.ReportMetric(without, "bare-ns")
		b.ReportMetric(under-without, "added-ns")
	})
	b.Run("every=100ms", func(b *testing.B) {
		var under, without float64
		for b.Loop() {
			for _, side := range []struct {
				p  *process
				ns *float64
			}{{shim, &under}, {bare, &without}} {
				time.Sleep(100 * time.Millisecond) // each finds the machine as asleep as the other
				*side.ns += infos(b, side.p, 1)
			}
		}
		b.ReportMetric(under/float64(b.N), "ns/op")
		b.ReportMetric(without/float64(b.N), "bare-ns")
		b.ReportMetric((under-without)/float64(b.N), "added-ns")
	})
}
