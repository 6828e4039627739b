package bench

import (
	"flag"
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
func BenchmarkStartTogether(b *testing.B) {
	b.Run("in=c", func(b *testing.B) { startTogether(b, rig.Build(b, "programs/cudaprog-dlsym"), "alloc a 1M; free a") })
	b.Run("in=python", func(b *testing.B) { startTogether(b, "/usr/bin/python3", "-c", inPython) })
	if !*inFFmpeg {
		return
	}
	b.Run("in=ffmpeg", func(b *testing.B) {
		startTogether(b, "ffmpeg", "-nostdin", "-v", "error", "-f", "lavfi", "-i", "testsrc2=size=320x240", "-frames:v", "1",
			"-vf", "format=nv12,hwupload_cuda,hwdownload,format=nv12", "-f", "null", "-")
	})
}

func startTogether(b *testing.B, program string, args ...string) {
	const programs = 1000
	// The simulated driver makes a file for each program, and takes it away at its end. A filesystem on disk that has lost
	// many in the last seconds looks long for a place, longer than all the rest takes.
	b.Setenv("TMPDIR", "/dev/shm")
	m := rig.New(b, rig.Options{Devices: "64T", NoMount: true, Daemon: []string{"--debug=false"}})
	round := func(env []string) float64 {
		m.AllGone() // else the daemon clears away what programs of an earlier round left in the driver
		return float64(m.Together(programs, env, program, args...).Milliseconds())
	}
	alone := append(m.PreloadEnv(), "GPUARB_SOCKET="+filepath.Join(m.Dir, "none"), "GPUARB_ON_LOSS=open")
	var bare, without, with, daemon []float64
	for range b.N {
		bare, without = append(bare, round(m.Env())), append(without, round(alone))
		before := cpu(b, m)
		with = append(with, round(m.PreloadEnv()))
		m.AllGone()
		daemon = append(daemon, float64((cpu(b, m)-before).Microseconds())/programs)
	}
	b.ReportMetric(middle(bare), "bare-ms")
	b.ReportMetric(middle(without), "without-ms")
	b.ReportMetric(middle(with), "with-ms")
	b.ReportMetric(middle(daemon), "daemon-µs")
	b.ReportMetric(middle(with)/middle(without), "ratio")
	b.ReportMetric(middle(with)/middle(bare), "ratio-bare")
}
