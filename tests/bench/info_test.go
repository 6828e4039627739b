package bench

import (
	"fmt"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file measures what the library adds to a query for free memory. The floor is the same query without the library.

// BenchmarkMemGetInfo measures a program's query for free memory, CUDA's and NVML's, under the library and without it, on
// the simulated driver.
func BenchmarkMemGetInfo(b *testing.B) {
	m := rig.New(b, rig.Options{Devices: "8G", NoMount: true})
	program := rig.Build(b, "programs/cudaprog-dlsym")
	shim := start(b, m.Gpuarb("run", "--memory", "1G", "--", program))
	bare := start(b, m.Command(m.Env(), program))
	shim.ask(b, "alloc a 1M")
	bare.ask(b, "alloc a 1M")
	for by, question := range map[string]string{"cuda": "infos", "nvml": "nvmlinfos"} {
		b.Run("by="+by, func(b *testing.B) {
			under, without := questions(b, shim, question), questions(b, bare, question)
			b.ReportMetric(under, "ns/op")
			b.ReportMetric(without, "bare-ns")
			b.ReportMetric(under-without, "added-ns")
		})
	}
}

// questions makes a program send b.N queries, and returns the time for one query, in ns.
func questions(b *testing.B, p *process, question string) (ns float64) {
	b.Helper()
	var count int
	answer := p.ask(b, fmt.Sprint(question, " ", b.N))
	if _, err := fmt.Sscanf(answer, question+" ok %d %f", &count, &ns); err != nil || count != b.N {
		b.Fatalf("%q: %v", answer, err)
	}
	return ns
}
