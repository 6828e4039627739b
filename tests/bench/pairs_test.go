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
//
// A driver of OpenCL's says when an object ends to who asked for that, which no other way tells. What it takes for that alone is the
// floor: the bare program asks, and does nothing then.
func BenchmarkPairs(b *testing.B) {
	m := rig.New(b, rig.Options{Devices: "none", CPU: true, NoMount: true})
	layer := filepath.Dir(rig.Build(b, "vulkan/gpuarb_layer.json"))
	under := append(m.PreloadEnv(), "GPUARB_VULKAN=1", "VK_ADD_LAYER_PATH="+layer, "VK_INSTANCE_LAYERS=VK_LAYER_GPUARB_arbiter")
	bare := start(b, m.Command(m.Env(), rig.Build(b, "bench/pairs")))
	shim := start(b, m.Command(under, rig.Build(b, "bench/pairs")))
	for _, what := range []struct {
		name, verb string
		calls      int
		floor      string
	}{
		{"vulkan/allocate+free", "vulkan", 1000, ""},
		{"vulkan/dispatch", "dispatch", 4000, ""},
		{"opencl/create+release", "opencl", 500, "told"},
	} {
		b.Run(what.name, func(b *testing.B) {
			sides := []*side{{of: bare, verb: what.verb}, {of: shim, verb: what.verb}}
			if what.floor != "" {
				sides = append(sides, &side{of: bare, verb: what.floor})
			}
			for b.Loop() {
				for _, s := range sides {
					s.turn(b, what.calls)
				}
			}
			driver := sides[0].quiet()
			b.ReportMetric(driver, "driver-ns")
			b.ReportMetric(sides[1].quiet()-driver, "added-ns")
			if what.floor != "" {
				b.ReportMetric(sides[2].quiet()-driver, "floor-ns")
			}
		})
	}
}

// side is one of those that take turns.
type side struct {
	of   *process
	verb string
	took []float64 // ns a call, of each turn
}

func (s *side) turn(b *testing.B, calls int) {
	ns, err := strconv.ParseFloat(s.of.ask(b, fmt.Sprint(s.verb, " ", calls)), 64)
	if err != nil {
		b.Fatal(err)
	}
	s.took = append(s.took, ns)
}

func (s *side) quiet() float64 {
	slices.Sort(s.took)
	return s.took[len(s.took)/10]
}
