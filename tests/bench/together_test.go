package bench

import (
	"flag"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// inFFmpeg has BenchmarkStartTogether start ffmpeg too, which takes minutes.
var inFFmpeg = flag.Bool("bench.ffmpeg", false, "have BenchmarkStartTogether start a thousand ffmpegs as well")

// inPython is a program that makes a context, takes and gives back 1 MiB and ends.
const inPython = `
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
context, address = ctypes.c_void_p(), ctypes.c_uint64()
for failed in (cuda.cuInit(0), cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0),
               cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(1 << 20)),
               cuda.cuMemFree_v2(address)):
    assert failed == 0, failed
`

// BenchmarkStartTogether starts a thousand programs at once, each of which makes a context, takes and
// gives back 1 MiB and ends, and waits for all of them: bare, under the library where there is no daemon,
// and under the library with one, in turns. ratio is the last to the second; daemon is the processor time that the daemon
// takes for one program, from before it starts until nothing of it is left. One in C does nothing else, and is there
// in a millisecond; one in Python loads what a program loads, and ffmpeg (-bench.ffmpeg) has a picture on the device.
//
// In C the programs are started under the library once more with a floor (floor/floor.c), the least that a daemon of this protocol takes, in
// the daemon's place. floor-ms is how long that takes, floor-ratio is floor-ms to without-ms, and floor-µs the processor
// time that this server takes for one program. ratio-floor is with-ms to floor-ms, which is the daemon's own part of ratio.
func BenchmarkStartTogether(b *testing.B) {
	b.Run("in=c", func(b *testing.B) {
		startTogether(b, true, rig.Build(b, "programs/cudaprog-dlsym"), "alloc a 1M; free a")
	})
	b.Run("in=python", func(b *testing.B) { startTogether(b, false, "/usr/bin/python3", "-c", inPython) })
	if !*inFFmpeg {
		return
	}
	b.Run("in=ffmpeg", func(b *testing.B) {
		startTogether(b, false, "ffmpeg", "-nostdin", "-v", "error", "-f", "lavfi", "-i", "testsrc2=size=320x240", "-frames:v", "1",
			"-vf", "format=nv12,hwupload_cuda,hwdownload,format=nv12", "-f", "null", "-")
	})
}

// together is how many programs are started at once.
const together = 1000

// way is one way to start the programs, and what each round of them took.
type way struct {
	env    []string
	server int       // the process that answers them, if any
	gone   func()    // waits until the server has nothing left of them
	took   []float64 // milliseconds
	own    []float64 // the server's processor time for one program, in microseconds
}

func (w *way) round(b *testing.B, m *rig.Machine, program string, args []string) {
	m.AllGone() // else the daemon clears away what programs of an earlier round left in the driver
	if w.server == 0 {
		w.took = append(w.took, float64(m.Together(together, w.env, program, args...).Milliseconds()))
		return
	}
	before := cpuOf(b, w.server)
	w.took = append(w.took, float64(m.Together(together, w.env, program, args...).Milliseconds()))
	w.gone()
	w.own = append(w.own, float64((cpuOf(b, w.server)-before).Microseconds())/together)
}

func startTogether(b *testing.B, withFloor bool, program string, args ...string) {
	// The simulated driver makes a file for each program, and takes it away at its end. A filesystem on disk that has lost
	// many in the last seconds looks long for a place, longer than all the rest takes.
	b.Setenv("TMPDIR", "/dev/shm")
	m := rig.New(b, rig.Options{Devices: "64T", NoMount: true, Daemon: []string{"--debug=false"}})
	bare := way{env: m.Env()}
	without := way{env: append(m.PreloadEnv(), "GPUARB_SOCKET="+filepath.Join(m.Dir, "none"), "GPUARB_ON_LOSS=open")}
	with := way{env: m.PreloadEnv(), server: m.DaemonPID(), gone: m.AllGone}
	ways := []*way{&bare, &without, &with}
	var floor way
	if withFloor {
		floor = newFloor(b, m)
		m.Together(1, floor.env, program, args...) // which it records
		ways = []*way{&bare, &without, &floor, &with}
	}
	for range b.N {
		for _, w := range ways {
			w.round(b, m, program, args)
		}
	}
	b.ReportMetric(middle(bare.took), "bare-ms")
	b.ReportMetric(middle(without.took), "without-ms")
	b.ReportMetric(middle(with.took), "with-ms")
	b.ReportMetric(middle(with.own), "daemon-µs")
	b.ReportMetric(middle(with.took)/middle(without.took), "ratio")
	b.ReportMetric(middle(with.took)/middle(bare.took), "ratio-bare")
	if withFloor {
		b.ReportMetric(middle(floor.took), "floor-ms")
		b.ReportMetric(middle(floor.own), "floor-µs")
		b.ReportMetric(middle(floor.took)/middle(without.took), "floor-ratio")
		b.ReportMetric(middle(with.took)/middle(floor.took), "ratio-floor")
	}
}

// newFloor starts the server that stands in the daemon's place. It passes the first program on to the daemon.
func newFloor(b *testing.B, m *rig.Machine) way {
	b.Helper()
	socket := filepath.Join(m.Dir, "floor")
	p := start(b, m.Command(m.Env(), rig.Build(b, "bench/floor"), socket, m.Socket))
	return way{env: append(m.PreloadEnv(), "GPUARB_SOCKET="+socket), server: p.cmd.Process.Pid, gone: func() {
		if n := p.ask(b, "served"); n != fmt.Sprint(together) {
			b.Fatalf("the floor has served %s programs, want %d", n, together)
		}
	}}
}
