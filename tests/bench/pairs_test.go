package bench

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// BenchmarkPairs is what the library adds to a call of Vulkan's and of OpenCL's, on lavapipe and PoCL: two programs make the same
// calls, one bare and one under the library, in turns of a fraction of a millisecond. Of the turns the lower decile counts.
func BenchmarkPairs(b *testing.B) {
	m := rig.New(b, rig.Options{Devices: "none", CPU: true, NoMount: true})
	layer := filepath.Dir(rig.Build(b, "vulkan/gpuarb_layer.json"))
	under := append(m.PreloadEnv(), "GPUARB_VULKAN=1", "VK_ADD_LAYER_PATH="+layer, "VK_INSTANCE_LAYERS=VK_LAYER_GPUARB_arbiter")
	bare := start(b, m.Command(m.Env(), rig.Build(b, "bench/pairs")))
	shim := start(b, m.Command(under, rig.Build(b, "bench/pairs")))
	for _, what := range []struct {
		name, verb string
		calls      int
	}{
		{"vulkan/allocate+free", "vulkan", 1000},
		{"vulkan/dispatch", "dispatch", 4000},
		{"opencl/create+release", "opencl", 500},
	} {
		b.Run(what.name, func(b *testing.B) { pairs(b, bare, shim, what.verb, what.calls) })
	}
}

func pairs(b *testing.B, bare, shim *process, verb string, calls int) {
	var without, with []float64
	for b.Loop() {
		for _, side := range []struct {
			p    *process
			took *[]float64
		}{{bare, &without}, {shim, &with}} {
			ns, err := strconv.ParseFloat(side.p.ask(b, fmt.Sprint(verb, " ", calls)), 64)
			if err != nil {
				b.Fatal(err)
			}
			*side.took = append(*side.took, ns)
		}
	}
	slices.Sort(without)
	slices.Sort(with)
	quiet := len(with) / 10
	b.ReportMetric(without[quiet], "driver-ns")
	b.ReportMetric(with[quiet]-without[quiet], "added-ns")
}
