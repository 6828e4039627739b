//go:build full

package opencl

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file runs clpeak and darktable, which compile their kernels for minutes, for the full tests only. Their
// output or picture must equal that without the library. ffmpeg_test.go and programs_test.go have the programs
// of every run.

// long is the time limit for programs that compile their kernels first.
const long = 9 * time.Minute

func slowly(t *testing.T) *rig.Machine {
	t.Helper()
	return rig.New(t, rig.Options{Devices: "none", CPU: true, NoMount: true, Life: 3 * long,
		Config: "schema_version = 1\n[[device]]\nmatch.vendor = \"cpu\"\nmemory = \"4G\"\n"})
}

// TestFullClpeak: clpeak prints the same lines with and without the library, except for the figures,
// and never has more than its budget. It ends by itself if its budget is too small. It compiles its
// kernels for minutes.
func TestFullClpeak(t *testing.T) {
	t.Parallel()
	m := slowly(t)
	shape := func(text string) string {
		return regexp.MustCompile(`(?m)^(\s+float\d* +: )[0-9.]+$`).ReplaceAllString(text, "$1 x")
	}
	bare := rig.RunFor(t, long, m.Command(m.Env(), "clpeak", "--global-bandwidth"))
	if bare.Code != 0 || !strings.Contains(bare.Stdout, "float16") {
		t.Fatalf("without the library: code %d\n%s\n%s", bare.Code, bare.Stdout, bare.Stderr)
	}
	r := rig.RunFor(t, long, m.Gpuarb("run", "--memory", "2G", "--", "clpeak", "--global-bandwidth"))
	if r.Code != 0 || shape(r.Stdout) != shape(bare.Stdout) {
		t.Errorf("code %d, got\n%s\nwant\n%s\n%s", r.Code, r.Stdout, bare.Stdout, r.Stderr)
	}
	none(m)
	// clpeak makes blocks of the largest permitted size, so they must fit the reported size.
	if peak := m.Snapshot().Devices[0].Peak; peak == 0 || peak > 2<<30 {
		t.Errorf("its peak was %d bytes", peak)
	}
	r = rig.RunFor(t, long, m.Gpuarb("run", "--memory", "1K", "--", "clpeak", "--global-bandwidth"))
	if strings.Contains(r.Stderr, "Segmentation") || r.Code > 125 {
		t.Errorf("refused, it ends with %d\n%s\n%s", r.Code, r.Stdout, r.Stderr)
	}
	none(m)
}

// TestFullDarktable: a picture that darktable develops with OpenCL is the same, byte for byte, with
// and without the library. If its budget is too small, or its buffers are refused, darktable uses
// its own code, and the picture equals the picture of that code. It compiles its kernels for
// minutes at first. It ignores CPU devices until its file of settings allows them.
func TestFullDarktable(t *testing.T) {
	t.Parallel()
	m := slowly(t)
	const kernels = "/usr/share/darktable/kernels" // PoCL looks for include files in the working directory
	picture := filepath.Join(m.Dir, "picture.ppm")
	pixels := make([]byte, 512*512*3)
	for i := range pixels {
		pixels[i] = byte(i*7 + i/512)
	}
	if err := os.WriteFile(picture, append([]byte("P6\n512 512\n255\n"), pixels...), 0o600); err != nil {
		t.Fatal(err)
	}
	develop := func(name, opencl string, run ...string) (picture, said string) {
		t.Helper()
		to := filepath.Join(m.Dir, name+".ppm")
		cmd := append(run, "darktable-cli", filepath.Join(m.Dir, "picture.ppm"), to, "--core", "--configdir", filepath.Join(m.Dir, "settings"),
			"--cachedir", filepath.Join(m.Dir, "cache"), "--library", ":memory:", "-d", "opencl", "-d", "perf", "--conf", "opencl="+opencl)
		c := m.Command(m.Env(), cmd[0], cmd[1:]...)
		if len(run) > 0 {
			c = m.Gpuarb(cmd...)
		}
		c.Dir = kernels
		r := rig.RunFor(t, long, c)
		data, err := os.ReadFile(to)
		if r.Code != 0 || err != nil {
			t.Fatalf("%s: code %d, %v\n%s\n%s", name, r.Code, err, r.Stdout, r.Stderr)
		}
		return string(data), r.Stdout + r.Stderr
	}
	develop("discarded", "true")
	settings := filepath.Join(m.Dir, "settings", "darktablerc")
	text, err := os.ReadFile(settings)
	if err != nil {
		t.Fatal(err)
	}
	text = regexp.MustCompile(`(?m)^(cldevice_v4_\w+=(?:\d+ ){7})1 `).ReplaceAll(text, []byte("${1}0 "))
	if err := os.WriteFile(settings, text, 0o600); err != nil {
		t.Fatal(err)
	}
	want, said := develop("bare", "true")
	if !strings.Contains(said, "on GPU") {
		t.Fatalf("it does not use OpenCL:\n%s", said)
	}
	own, _ := develop("own", "false")
	if got, said := develop("with", "true", "run", "--memory", "1G", "--"); got != want || !strings.Contains(said, "on GPU") {
		t.Errorf("it develops another picture, or not by OpenCL:\n%s", said)
	}
	none(m)
	if peak := m.Snapshot().Devices[0].Peak; peak < 512*512*16 || peak > 1<<30 {
		t.Errorf("its peak was %d bytes", peak)
	}
	other := begin(m, "link")
	other.Want("context c", "ok")
	other.Want("buffer a c 2G", "ok")
	other.Want("buffer b c 2046M", "ok")
	if got, said := develop("refused", "true", "run", "--no-wait", "--"); got != own || !strings.Contains(said, "gpuarb: ") {
		t.Errorf("with 2 MiB left it develops another picture, or was not refused:\n%s", said)
	}
	uses(m, other, 4094*mib)
	other.End()
	// This comes last, because darktable never uses a device again that was too small once.
	if got, said := develop("small", "true", "run", "--memory", "1M", "--"); got != own || !strings.Contains(said, "insufficient global memory (1MB)") {
		t.Errorf("with 1 MiB it develops another picture, or not by itself:\n%s", said)
	}
	none(m)
}
