package e2e

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold that ffmpeg computes the same frames under the library, and that its memory is limited and shown to
// the byte. The oracles are ffmpeg without the library and the driver's count. ffmpeg_ways_test.go has two devices and
// ffmpeg's failures.

// Bytes of one uploaded frame: the simulated driver's pitch is a
// multiple of 512, and NV12 has one and a half planes.
const (
	nv12At1080p = 2048 * 1080 * 3 / 2 // width 1920 → pitch 2048
	nv12At360p  = 1024 * 360 * 3 / 2  // width 640 → pitch 1024
)

// source returns ffmpeg arguments for frames of a moving test picture.
func source(size string, frames int) []string {
	return []string{"-nostdin", "-v", "error", "-f", "lavfi", "-i", "testsrc2=size=" + size + ":rate=25",
		"-frames:v", fmt.Sprint(frames)}
}

const (
	oneUpload    = "format=nv12,hwupload_cuda,hwdownload,format=nv12"
	threeUploads = "format=nv12,split=3[a][b][c];" +
		"[a]hwupload_cuda,hwdownload,format=nv12[x];[b]hwupload_cuda,hwdownload,format=nv12[y];" +
		"[c]hwupload_cuda,hwdownload,format=nv12[z];[x][y]hstack[xy];[xy][z]hstack"
)

// framemd5 runs ffmpeg and returns the checksums of its frames.
func framemd5(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	r := rig.Run(t, cmd)
	if r.Code != 0 {
		t.Fatalf("ffmpeg: exit status %d\n%s", r.Code, r.Stderr)
	}
	if n := strings.Count(r.Stdout, "\n"); n < 100 {
		t.Fatalf("only %d lines of checksums", n)
	}
	return r.Stdout
}

// TestFramesAreTheSameUnderTheShim: ffmpeg's frames have the same checksums with the shim as without.
func TestFramesAreTheSameUnderTheShim(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{})
	args := append(source("1920x1080", 300), "-vf", oneUpload, "-f", "framemd5", "-")
	bare := framemd5(t, m.Command(m.Env(), "ffmpeg", args...))
	shimmed := framemd5(t, m.Gpuarb(append([]string{"run", "--memory", "64M", "--", "ffmpeg"}, args...)...))
	if bare != shimmed {
		t.Error("the frames differ from those without the shim")
	}
	preloaded := framemd5(t, m.Command(m.PreloadEnv(), "ffmpeg", args...))
	if bare != preloaded {
		t.Error("the frames differ under the bare preload")
	}
}

// peakOf runs three uploads without any shim and returns the most bytes that they held
// at once, by the driver's count.
func peakOf(t *testing.T, m *rig.Machine, args []string) uint64 {
	t.Helper()
	m.Sim("reset-peak")
	if r := rig.Run(t, m.Command(m.Env(), "ffmpeg", args...)); r.Code != 0 {
		t.Fatalf("ffmpeg: exit status %d\n%s", r.Code, r.Stderr)
	}
	return m.SimNumber("peak", "0")
}

// TestExactPeakFitsAndOneByteLessDoesNot: ffmpeg runs in a budget of exactly its peak, and fails with one byte less.
func TestExactPeakFitsAndOneByteLessDoesNot(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G"})
	args := append(source("640x360", 50), "-filter_complex", threeUploads, "-f", "null", "-")
	peak := peakOf(t, m, args)
	if peak < 3*nv12At360p {
		t.Fatalf("the driver's peak is %d, want at least %d: are there three uploads?", peak, 3*nv12At360p)
	}
	run := func(budget uint64) rig.Result {
		m.Sim("reset-peak")
		return rig.Run(t, m.Gpuarb(append([]string{"run", "--memory", fmt.Sprint(budget), "--", "ffmpeg"}, args...)...))
	}
	if r := run(peak); r.Code != 0 {
		t.Errorf("with the exact peak: exit status %d\n%s", r.Code, r.Stderr)
	}
	if got := m.SimNumber("peak", "0"); got != peak {
		t.Errorf("with the exact peak the driver saw %d, want %d", got, peak)
	}
	m.Sim("fail", "cuMemAlloc_v2:1000000:1") // a fault that never comes, so that the driver counts the calls
	m.Sim("fail", "cuMemFree_v2:1000000:1")
	r := run(peak - 1)
	if r.Code == 0 || !strings.Contains(r.Stderr, "CUDA_ERROR_OUT_OF_MEMORY") {
		t.Errorf("one byte less: exit status %d\n%s", r.Code, r.Stderr)
	}
	if got := m.SimNumber("peak", "0"); got != peak-peak/3 {
		t.Errorf("one byte less: the driver's peak is %d, want two thirds of %d", got, peak)
	}
	if faults := m.Sim("faults"); calls(faults, "cuMemAlloc_v2") != 2 || calls(faults, "cuMemFree_v2") != 2 {
		t.Errorf("two are granted, the third is refused without a call of the driver, the two are freed; calls:\n%s", faults)
	}
	if total := m.SimNumber("total", "0"); total != 0 {
		t.Errorf("%d bytes are left behind", total)
	}
}

// calls returns the count of a function's calls from the output of `simcuda faults`.
func calls(faults, function string) int {
	for _, line := range strings.Split(faults, "\n") {
		n := 0
		if name, rest, _ := strings.Cut(line, " "); name == function {
			if _, err := fmt.Sscanf(rest[strings.Index(rest, "calls="):], "calls=%d", &n); err == nil {
				return n
			}
		}
	}
	return -1
}

// TestLeasesShowARunningProgramToTheByte: while ffmpeg runs, the table of leases shows its memory to the byte.
func TestLeasesShowARunningProgramToTheByte(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G"})
	args := append([]string{"-re"}, source("1920x1080", 10000)...)
	args = append(args, "-vf", oneUpload, "-f", "null", "-")
	cmd := m.Gpuarb(append([]string{"run", "--memory", "64M", "--", "ffmpeg"}, args...)...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, "the driver holds the upload", func() bool { return m.SimNumber("total", "0") == nv12At1080p })
	fields := row(t, m, 1)
	for column, want := range map[string]string{"USED": fmt.Sprint(nv12At1080p), "PEAK": fmt.Sprint(nv12At1080p),
		"BUDGET": fmt.Sprint(64 << 20), "STATE": "running", "GPU": "0", "STREAMS": "0", "USER": "root"} {
		if got := fields[column]; got != want {
			t.Errorf("%s is %q, want %q", column, got, want)
		}
	}
	if got := m.Read("devices/0/memory.current"); got != fmt.Sprintln(nv12At1080p) {
		t.Errorf("devices/0/memory.current is %q", got)
	}
	for _, file := range []string{"processes/" + fields["PID"] + "/memory.current", "jobs/1/memory.current"} {
		if got := m.Read(file); got != fmt.Sprintln(nv12At1080p) {
			t.Errorf("%s is %q", file, got)
		}
	}
	if r := rig.Run(t, m.Command(m.Env(), "kill", "-INT", fields["PID"])); r.Code != 0 {
		t.Fatal(r.Stderr)
	}
	_ = rig.Wait(t, rig.Patience, cmd)
	rig.Eventually(t, "its row is gone", func() bool { return strings.Count(m.Read("leases"), "\n") == 1 })
	if got := m.Read("devices/0/memory.current"); got != "0\n" {
		t.Errorf("afterwards devices/0/memory.current is %q", got)
	}
	s := m.Snapshot()
	if g := s.Devices[0].Granted; g != accounting.Bytes(0) {
		t.Errorf("afterwards %d bytes are granted", g)
	}
}

// row returns the first row of leases, by column. The table must have the given number of rows.
func row(t *testing.T, m *rig.Machine, rows int) map[string]string {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(m.Read("leases")), "\n")
	if len(lines) != rows+1 {
		t.Fatalf("%d rows, want %d:\n%s", len(lines)-1, rows, strings.Join(lines, "\n"))
	}
	values := strings.Fields(lines[1])
	got := map[string]string{}
	for i, column := range strings.Fields(lines[0]) {
		got[column] = values[i]
	}
	return got
}

// TestUnmanagedUseIsSeen: a program without the shim has no lease, but its memory is counted.
func TestUnmanagedUseIsSeen(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G", Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}})
	args := append([]string{"-re"}, source("1920x1080", 10000)...)
	cmd := m.Command(m.Env(), "ffmpeg", append(args, "-vf", oneUpload, "-f", "null", "-")...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, "the program is seen as unmanaged", func() bool {
		return m.Read("devices/0/memory.unmanaged") == fmt.Sprintln(nv12At1080p)
	})
	if s := m.Snapshot(); len(s.Devices[0].UnmanagedBy) != 1 || s.Devices[0].UnmanagedBy[0].PID != cmd.Process.Pid ||
		!strings.HasPrefix(s.Devices[0].UnmanagedBy[0].Command, "ffmpeg") {
		t.Errorf("unmanaged by %+v, want ffmpeg, %d", s.Devices[0].UnmanagedBy, cmd.Process.Pid)
	}
	_ = cmd.Process.Kill()
	_ = rig.Wait(t, rig.Patience, cmd)
	rig.Eventually(t, "the unmanaged memory is gone", func() bool { return m.Read("devices/0/memory.unmanaged") == "0\n" })
}
