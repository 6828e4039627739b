package e2e

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold that ffmpeg can use two devices with a budget on each, and fails under the library exactly as
// without it. ffmpeg_test.go has one device.

// TestUploadsToTwoDevices: one filter graph uploads to two devices in threads of its own, and each device has its own budget.
func TestUploadsToTwoDevices(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{NoMount: true})
	const branch = "[%d]hwupload_cuda=device=%d,hwdownload,format=nv12[o%[1]d];"
	graph := "format=nv12,split=4[0][1][2][3];"
	for i, device := range []int{0, 1, 1, 0} {
		graph += fmt.Sprintf(branch, i, device)
	}
	graph += "[o0][o1]hstack[top];[o2][o3]hstack[bottom];[top][bottom]vstack"
	args := append(source("640x360", 100), "-filter_complex_threads", "8", "-filter_complex", graph, "-f", "framemd5", "-")
	bare := framemd5(t, m.Command(m.Env(), "ffmpeg", args...))
	if got := framemd5(t, m.Command(m.PreloadEnv(), "ffmpeg", args...)); got != bare {
		t.Error("the frames differ under the bare preload")
	}
	run := func(budget uint64) rig.Result {
		m.Sim("reset-peak")
		return rig.Run(t, m.Gpuarb(append([]string{"run", "--memory", fmt.Sprint(budget), "--", "ffmpeg"}, args...)...))
	}
	const two = 2 * nv12At360p
	if r := run(two); r.Code != 0 || r.Stdout != bare {
		t.Errorf("room for two uploads on each device: exit status %d, the same frames: %v\n%s", r.Code, r.Stdout == bare, r.Stderr)
	}
	for _, device := range []string{"0", "1"} {
		if got := m.SimNumber("peak", device); got != two {
			t.Errorf("the peak of GPU %s is %d, want %d", device, got, two)
		}
	}
	if r := run(two - 1); r.Code == 0 || !strings.Contains(r.Stderr, "CUDA_ERROR_OUT_OF_MEMORY") {
		t.Errorf("one byte less: exit status %d\n%s", r.Code, r.Stderr)
	}
	for _, device := range []string{"0", "1"} {
		if got := m.SimNumber("peak", device); got > two-1 {
			t.Errorf("one byte less: the peak of GPU %s is %d", device, got)
		}
	}
	zero(t, m)
}

// address matches the addresses in ffmpeg's messages, which differ in each run.
var address = regexp.MustCompile(` @ 0x[0-9a-f]+`)

// TestFfmpegFailsAsWithoutTheShim: if the driver lacks a function, or the device is missing,
// ffmpeg prints and does the same with the shim as without, whether it goes on or gives up.
func TestFfmpegFailsAsWithoutTheShim(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{NoMount: true})
	film := filepath.Join(m.Dir, "film.mp4")
	if r := rig.Run(t, m.Command(m.Env(), "ffmpeg", append(source("640x360", 25), "-c:v", "libx264", film)...)); r.Code != 0 {
		t.Fatal(r.Stderr)
	}
	in := []string{"-nostdin", "-v", "error"}
	for name, c := range map[string]struct {
		args []string
		code int
	}{
		"no decoder, in software then": {[]string{"-hwaccel", "cuda", "-i", film, "-f", "md5", "-"}, 0},
		"no decoder, on the device":    {[]string{"-hwaccel", "cuda", "-hwaccel_output_format", "cuda", "-i", film, "-vf", "hwdownload,format=nv12", "-f", "md5", "-"}, 1},
		"no encoder":                   {[]string{"-i", film, "-c:v", "h264_nvenc", "-f", "null", "-"}, 1},
		"no kernels":                   {[]string{"-i", film, "-vf", "format=nv12,hwupload_cuda,scale_cuda=320:180,hwdownload,format=nv12", "-f", "md5", "-"}, 1},
		"no such device":               {[]string{"-init_hw_device", "cuda=a:7", "-i", film, "-f", "md5", "-"}, 1},
		"two devices, one used": {[]string{"-init_hw_device", "cuda=a:0", "-init_hw_device", "cuda=b:1", "-filter_hw_device", "b", "-i", film,
			"-vf", "format=nv12,hwupload,hwdownload,format=nv12", "-f", "md5", "-"}, 0},
	} {
		args := append(in[:len(in):len(in)], c.args...)
		bare := rig.Run(t, m.Command(m.Env(), "ffmpeg", args...))
		bare.Stderr = address.ReplaceAllString(bare.Stderr, "")
		if bare.Code != c.code || (bare.Stdout != "") != (c.code == 0) {
			t.Errorf("%s: without the shim %+v", name, bare)
		}
		for how, cmd := range map[string][]string{"preload": nil, "run": append([]string{"run", "--memory", "64M", "--", "ffmpeg"}, args...)} {
			command := m.Command(m.PreloadEnv(), "ffmpeg", args...)
			if cmd != nil {
				command = m.Gpuarb(cmd...)
			}
			got := rig.Run(t, command)
			got.Stderr = address.ReplaceAllString(got.Stderr, "")
			if got != bare {
				t.Errorf("%s, %s: %+v, without the shim %+v", name, how, got, bare)
			}
		}
	}
	zero(t, m)
}
