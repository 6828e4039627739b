package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold that GStreamer computes the same frames under the library, and that its memory and its streams are
// limited and counted exactly. The oracles are GStreamer without the library and the driver's count.
//
// GStreamer inspects its plugins in a process of their own, and then has a thread for each branch of a
// pipeline. An uploading element keeps one frame on the device, and each element on the device has a stream.

// pipeline returns a pipeline in which each branch uploads a test picture to the device and downloads it again.
func pipeline(source string, sinks ...string) []string {
	text := source + " ! video/x-raw,width=640,height=360,format=NV12 ! tee name=t"
	for _, sink := range sinks {
		text += " t. ! queue ! cudaupload ! video/x-raw(memory:CUDAMemory) ! cudadownload ! video/x-raw,format=NV12 ! " + sink
	}
	return append([]string{"-q"}, strings.Fields(text)...)
}

// gst lets a command find a stand-in for NVIDIA's decoder library beside the simulated driver, and gives it a plugin
// registry of its own.
func gst(t *testing.T, m *rig.Machine, cmd *exec.Cmd) *exec.Cmd {
	t.Helper()
	cmd.Env = append(cmd.Env, "GST_REGISTRY="+filepath.Join(m.Dir, "registry.bin"),
		"LD_LIBRARY_PATH="+rig.Build(t, "sim")+":"+rig.Build(t, "programs/nvcuvid"))
	return cmd
}

// TestGStreamersFramesAndPeak: GStreamer's frames are the same with the shim, and its exact peak is the smallest budget that suffices.
func TestGStreamersFramesAndPeak(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{NoMount: true})
	frames := filepath.Join(m.Dir, "frames")
	finite := pipeline("videotestsrc num-buffers=30", "filesink location="+frames, "fakesink", "fakesink")
	run := func(cmd *exec.Cmd) (rig.Result, string) {
		_ = os.Remove(frames)
		m.Sim("reset-peak")
		r := rig.Run(t, gst(t, m, cmd))
		text, _ := os.ReadFile(frames) // a failed run may have written none
		return r, string(text)
	}
	budgeted := func(budget uint64) *exec.Cmd {
		return m.Gpuarb(append([]string{"run", "--memory", fmt.Sprint(budget), "--", "gst-launch-1.0"}, finite...)...)
	}
	r, want := run(m.Command(m.Env(), "gst-launch-1.0", finite...))
	peak := m.SimNumber("peak", "0")
	if r.Code != 0 || len(want) != 30*640*360*3/2 || peak == 0 || peak%3 != 0 {
		t.Fatalf("without the shim: %+v, %d bytes of frames, a peak of %d", r, len(want), peak)
	}
	for name, cmd := range map[string]*exec.Cmd{
		"preload":        m.Command(m.PreloadEnv(), "gst-launch-1.0", finite...),
		"the exact peak": budgeted(peak),
	} {
		if r, got := run(cmd); r.Code != 0 || r.Stderr != "" || got != want {
			t.Errorf("%s: %+v, the same frames: %v", name, r, got == want)
		}
		if got := m.SimNumber("peak", "0"); got != peak {
			t.Errorf("%s: the driver saw %d, want %d", name, got, peak)
		}
	}
	r, _ = run(budgeted(peak - 1))
	if r.Code != 1 || !strings.Contains(r.Stderr, "ERROR: from element") ||
		strings.Count(r.Stderr, "): out of memory on GPU 0") != 1 {
		t.Errorf("one byte less: %+v", r)
	}
	if got := m.SimNumber("peak", "0"); got != peak-peak/3 {
		t.Errorf("one byte less: the driver's peak is %d, want two thirds of %d", got, peak)
	}
	zero(t, m)
}

// TestGStreamerRunning: the ledger has a running pipeline's memory to the byte, and each stream. The pipeline goes on
// when its budget is lowered below its memory, and leaves nothing at its end.
func TestGStreamerRunning(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{NoMount: true})
	args := append([]string{"run", "--memory", "64M", "--", "gst-launch-1.0"}, pipeline("videotestsrc is-live=true", "fakesink", "fakesink")...)
	cmd := gst(t, m, m.Gpuarb(args...))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var h rig.Held
	rig.Eventually(t, "both branches have a frame on the device, each of the four elements a stream", func() bool {
		held := m.Held()
		if len(held) != 1 { // GStreamer's plugin inspection runs in further processes
			return false
		}
		h = held[0]
		return h.Allocs == 2 && h.Streams == 4
	})
	agree(t, m, h.PID, h.Device)
	limit := rig.Run(t, m.Gpuarb("limit", strconv.Itoa(h.PID), "memory.max=1M"))
	if limit.Code != 0 {
		t.Fatal(limit.Stderr)
	}
	if state := m.Lease(h.PID, h.Device).State; state != "over" {
		t.Errorf("under a limit below what it holds it is %s", state)
	}
	agree(t, m, h.PID, h.Device)
	if err := syscall.Kill(h.PID, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = rig.Wait(t, rig.Patience, cmd)
	if s := stderr.String(); s != "" {
		t.Errorf("it says %q", s)
	}
	zero(t, m)
}
