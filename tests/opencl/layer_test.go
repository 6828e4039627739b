package opencl

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file shows that the library counts as a layer of OpenCL's loader (OPENCL_LAYERS) what it counts as a
// preload, and counts nothing twice as both. opencl_test.go has the preload alone.

// TestLayer: as a layer of OpenCL's loader the library counts calls that miss the wrappers. A call
// that passes both the wrapper and the layer counts once.
func TestLayer(t *testing.T) {
	t.Parallel()
	library, before := rig.Build(t, "libgpuarb.so"), rig.Build(t, "programs/clbefore.so")
	for name, preload := range map[string]string{"alone": "", "another preload": before, "both": library, "behind another": before + ":" + library} {
		for _, way := range ways {
			t.Run(name+"/"+way, func(t *testing.T) {
				t.Parallel()
				m := machine(t, "1G")
				p := m.Interact(m.Command(append(m.Env(), "GPUARB_SOCKET="+m.Socket, "GPUARB_MEMORY=64M", "OPENCL_LAYERS="+library,
					"LD_PRELOAD="+preload), rig.Build(t, "programs/clprog-"+way)))
				p.Want("total", fmt.Sprint("ok ", 64*mib))
				p.Want("context c", "ok")
				p.Want("retain c", "ok")
				p.Want("drop c", "ok")
				p.Want("buffer a c 10M", "ok")
				uses(m, p, 10*mib)
				p.Want("properties b c 1000003", "ok")
				p.Want("image i c 100 30", "ok")
				p.Want("svm v c 1M", "ok")
				uses(m, p, 11*mib+1000003+12000)
				p.Want("sub s a 1M", "ok")
				p.Want("release a", "ok")
				p.Want("release b", "ok")
				p.Want("release i", "ok")
				p.Want("svmfree v c", "ok")
				uses(m, p, 10*mib)
				p.Want("release s", "ok")
				uses(m, p, 0)
				p.Want("buffer a c 64M", "ok")
				p.Want("buffer b c 1", "err -4")
				p.Want("properties b c 1", "err -4")
				p.Want("release a", "ok")
				p.Want("buffer a c 1M", "ok")
				p.Want("chain a c 2M", "ok")
				p.Want("release a", "ok")
				uses(m, p, 2*mib)
				if l := m.Lease(p.PID(), m.First()); l.Contexts != 1 {
					t.Errorf("%d contexts", l.Contexts)
				}
				p.Want("drop c", "ok")
				p.End()
				if calls := strings.Count(p.Stderr(), "before "); strings.Contains(preload, before) && way == "link" && calls != 5 {
					t.Errorf("the other preload was called %d times, want 5", calls)
				}
			})
		}
	}
}

// TestLayerIsOff: a layer that is switched off has no effect.
func TestLayerIsOff(t *testing.T) {
	t.Parallel()
	m := machine(t, "64M")
	p := m.Interact(m.Command(append(m.Env(), "GPUARB_SOCKET="+m.Socket, "GPUARB_DISABLE=1", "OPENCL_LAYERS="+rig.Build(t, "libgpuarb.so")),
		rig.Build(t, "programs/clprog-link")))
	p.Want("context c", "ok")
	p.Want("buffer a c 100M", "ok")
	p.Want("release a", "ok")
	if s := m.Snapshot(); len(s.Leases) != 0 {
		t.Errorf("there are leases: %+v", s.Leases)
	}
}
