package opencl

import (
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file runs ffmpeg with an OpenCL filter: it must print the frames' checksums that it prints without the
// library, or fail by its own message. programs_test.go and programs_full_test.go have the other programs of
// users.

// blur returns ffmpeg's arguments to blur a number of frames with OpenCL and print their checksums.
func blur(frames int) []string {
	return []string{"ffmpeg", "-v", "error", "-f", "lavfi", "-i", "testsrc=s=640x480:r=25", "-frames:v", fmt.Sprint(frames), "-init_hw_device", "opencl=gpu:0.0",
		"-filter_hw_device", "gpu", "-vf", "format=yuv420p,hwupload,avgblur_opencl=sizeX=3,hwdownload,format=yuv420p", "-f", "framemd5", "-"}
}

// blurred returns the checksums that ffmpeg prints without the library.
func blurred(m *rig.Machine, frames int) string {
	m.T.Helper()
	args := blur(frames)
	r := rig.Run(m.T, m.Command(m.Env(), args[0], args[1:]...))
	if r.Code != 0 || strings.Count(r.Stdout, "460800,") != frames {
		m.T.Fatalf("without the library: code %d\n%s\n%s", r.Code, r.Stdout, r.Stderr)
	}
	return r.Stdout
}

func blurring(m *rig.Machine, frames int, flags ...string) *exec.Cmd {
	return m.Gpuarb(append(append(append([]string{"run"}, flags...), "--"), blur(frames)...)...)
}

// TestFFmpeg: ffmpeg's frames are the same with and without the library. If ffmpeg is refused
// memory, it ends by itself and says why; if it may wait, it waits. However it ends, nothing stays
// charged.
func TestFFmpeg(t *testing.T) {
	t.Parallel()
	m := machine(t, "64M")
	want := blurred(m, 5)
	if r := rig.Run(t, blurring(m, 5, "--memory", "32M")); r.Code != 0 || r.Stdout != want {
		t.Errorf("code %d, got\n%s\nwant\n%s\n%s", r.Code, r.Stdout, want, r.Stderr)
	}
	none(m)
	if r := rig.Run(t, blurring(m, 5, "--memory", "300K")); r.Code == 0 || r.Code >= 125 || !strings.Contains(r.Stderr, "gpuarb: ") {
		t.Errorf("refused, it ends with %d\n%s", r.Code, r.Stderr)
	}
	none(m)
	first := begin(m, "link")
	first.Want("context c", "ok")
	first.Want("buffer a c 64M", "ok")
	second := m.Begin(blurring(m, 5, "--wait"))
	rig.Eventually(t, "ffmpeg waits", func() bool { return len(m.Snapshot().Queue) == 1 })
	first.Want("release a", "ok")
	for line := range strings.Lines(want) {
		second.Expect(strings.TrimSuffix(line, "\n"))
	}
	second.End()
	first.End()
	third := m.Begin(blurring(m, 1<<30))
	rig.Eventually(t, "it has memory", func() bool { s := m.Snapshot(); return len(s.Leases) == 1 && s.Leases[0].Used > 0 })
	if err := syscall.Kill(m.Snapshot().Leases[0].PID, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	third.CloseStdin()
	none(m)
}

// none waits until no process holds anything.
func none(m *rig.Machine) {
	m.T.Helper()
	rig.Eventually(m.T, "nothing is left", func() bool {
		s := m.Snapshot()
		return len(s.Leases) == 0 && s.Devices[0].Granted == 0
	})
}
