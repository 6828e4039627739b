package vulkan

import (
	"bufio"
	"encoding/binary"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file runs ffmpeg, vkcube and vulkaninfo: what they print must be as without the library, and their
// leases must equal the bytes of the counting layer.

// blur returns ffmpeg's arguments for a filter that Vulkan computes. ffmpeg prints a hash of each
// frame.
func blur(input ...string) []string {
	args := append([]string{"ffmpeg", "-hide_banner", "-nostdin", "-loglevel", "error", "-init_hw_device", "vulkan=v:0",
		"-filter_hw_device", "v"}, input...)
	return append(args, "-vf", "format=yuv420p,hwupload,avgblur_vulkan,hwdownload,format=yuv420p", "-f", "framemd5", "-")
}

// tenFrames and endless are inputs for blur: ten frames, and ten frames a second without end.
var (
	tenFrames = []string{"-f", "lavfi", "-i", "testsrc=size=320x240:rate=10:duration=1"}
	endless   = []string{"-re", "-f", "lavfi", "-i", "testsrc=size=320x240:rate=10"}
)

// witnessed returns the environment of a preloaded program with the counting layer, and the file in
// which that layer counts.
func witnessed(m *rig.Machine) (environ []string, file string) {
	m.T.Helper()
	file = filepath.Join(m.Dir, "count")
	return append(chain(m, ours, witness), "VKCOUNT="+file), file
}

// counted returns the counting layer's two numbers: the bytes that exist, and the most that ever
// existed.
func counted(file string) (live, peak uint64) {
	text, err := os.ReadFile(file)
	if err != nil || len(text) != 16 {
		return 0, 0
	}
	return binary.LittleEndian.Uint64(text), binary.LittleEndian.Uint64(text[8:])
}

// agree waits until a program has memory, and the lease equals the counting layer's numbers, now
// and at the peak.
func agree(m *rig.Machine, pid int, file string) {
	m.T.Helper()
	rig.Eventually(m.T, "lease and driver agree about a program that has memory", func() bool {
		live, peak := counted(file)
		if live == 0 {
			return false
		}
		l := m.Lease(pid, m.First())
		return uint64(l.Used) == live && uint64(l.Peak) == peak
	})
}

// begun starts a preloaded program, compares its lease with the counting layer, kills it, and
// checks that nothing stays charged.
func begun(m *rig.Machine, environ, command []string) {
	m.T.Helper()
	counting, file := witnessed(m)
	cmd := vulkan(m, m.Command(m.PreloadEnv(), command[0], command[1:]...), append(counting, environ...)...)
	p := m.Begin(cmd)
	agree(m, p.Process(), file)
	p.Signal(syscall.SIGKILL)
	p.Wait()
	idle(m)
}

// refused runs a program whose budget is too small: the program exits by itself, and no signal ends
// it.
func refused(m *rig.Machine, budget string, environ, command []string) {
	m.T.Helper()
	cmd := m.Command(append(m.PreloadEnv(), "GPUARB_MEMORY="+budget), command[0], command[1:]...)
	if r := rig.Run(m.T, vulkan(m, cmd, append(alone(m), environ...)...)); r.Code <= 0 {
		m.T.Errorf("with %s %s ends with %d\n%s\n%s", budget, command[0], r.Code, r.Stdout, r.Stderr)
	}
	idle(m)
}

// waits runs a program that may wait while another program has all memory. It frees that memory
// when the daemon shows the waiting program, and returns the output.
func waits(m *rig.Machine, environ, command []string) string {
	m.T.Helper()
	hog := withDevice(m, "link")
	hog.Want("alloc a d 1G", "ok")
	cmd := run(m, []string{"--wait"}, command...)
	cmd.Env = append(cmd.Env, environ...)
	done := make(chan rig.Result, 1)
	go func() { done <- rig.Run(m.T, cmd) }()
	rig.Eventually(m.T, "the program waits", func() bool { return len(m.Snapshot().Queue) == 1 })
	hog.Want("free a", "ok")
	r := bounded.Receive(m.T, "the program has ended", done)
	hog.End()
	if r.Code != 0 {
		m.T.Errorf("having waited it ends with %d\n%s", r.Code, r.Stderr)
	}
	return r.Stdout
}

// TestFilter: ffmpeg's frames are the same under the library, and its filter's memory is charged
// exactly. If it is refused, it ends in its own way; if it may wait, it waits.
func TestFilter(t *testing.T) {
	t.Parallel()
	m := machine(t, "1G")
	bare := rig.Run(t, vulkan(m, m.Command(m.Env(), "ffmpeg", blur(tenFrames...)[1:]...)))
	if bare.Code != 0 || strings.Count(bare.Stdout, "\n0,") != 10 {
		t.Fatalf("ffmpeg ends with %d\n%s\n%s", bare.Code, bare.Stdout, bare.Stderr)
	}
	if r := rig.Run(t, run(m, []string{"--memory", "512M"}, blur(tenFrames...)...)); r.Code != 0 || r.Stdout != bare.Stdout {
		t.Errorf("under the library it ends with %d and prints\n%s\nwithout it\n%s\n%s", r.Code, r.Stdout, bare.Stdout, r.Stderr)
	}
	idle(m)
	refused(m, "100K", nil, blur(tenFrames...))
	if got := waits(m, nil, blur(tenFrames...)); got != bare.Stdout {
		t.Errorf("having waited it prints\n%s\nwant\n%s", got, bare.Stdout)
	}
}

// TestFilterKilled: ffmpeg is charged with the bytes that reach the driver, and they are returned
// when it is killed.
func TestFilterKilled(t *testing.T) {
	t.Parallel()
	begun(machine(t, "1G"), nil, blur(endless...))
}

// display starts a virtual screen for the test.
func display(m *rig.Machine) string {
	m.T.Helper()
	said, says, err := os.Pipe()
	if err != nil {
		m.T.Fatal(err)
	}
	defer said.Close()
	cmd := m.Command(m.Env(), "Xvfb", "-displayfd", "3", "-screen", "0", "640x640x24", "-nolisten", "tcp")
	cmd.ExtraFiles = []*os.File{says}
	m.Begin(cmd)
	_ = says.Close()
	number := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(said).ReadString('\n')
		number <- strings.TrimSpace(line)
	}()
	got := bounded.Receive(m.T, "the display says its number", number)
	if got == "" {
		m.T.Fatal("Xvfb has not started")
	}
	return "DISPLAY=:" + got
}

// cube returns the command that draws a number of frames.
func cube(frames string) []string { return []string{"vkcube", "--suppress_popups", "--c", frames} }

// TestCube: vkcube draws to its end under the library, and waits if it may wait. It is charged with the
// bytes that reach the driver, and they are returned when it is killed.
func TestCube(t *testing.T) {
	t.Parallel()
	m := machine(t, "1G")
	screen := display(m)
	bare := rig.Run(t, vulkan(m, m.Command(m.Env(), "vkcube", cube("20")[1:]...), screen))
	if bare.Code != 0 {
		t.Fatalf("vkcube ends with %d\n%s", bare.Code, bare.Stderr)
	}
	cmd := run(m, []string{"--memory", "512M"}, cube("20")...)
	cmd.Env = append(cmd.Env, screen)
	if r := rig.Run(t, cmd); r.Code != 0 || r.Stdout != bare.Stdout || r.Stderr != bare.Stderr {
		t.Errorf("under the library it ends with %d and says\n%s\n%s\nwithout it\n%s\n%s", r.Code, r.Stdout, r.Stderr, bare.Stdout, bare.Stderr)
	}
	idle(m)
	if got := waits(m, []string{screen}, cube("20")); got != bare.Stdout {
		t.Errorf("having waited it prints\n%s\nwant\n%s", got, bare.Stdout)
	}
	idle(m)
	begun(m, []string{screen}, cube("100000000"))
}

// TestCubeAmongLayers: vkcube draws with the validation layer, MangoHud and Mesa's overlay before
// and behind the library, and the validation layer reports the same as without the library.
func TestCubeAmongLayers(t *testing.T) {
	t.Parallel()
	m := machine(t, "1G")
	screen := display(m)
	said := func(layers ...string) string {
		cmd := vulkan(m, m.Command(m.PreloadEnv(), "vkcube", cube("5")[1:]...), append(chain(m, layers...), screen, "HOME="+m.Dir)...)
		r := rig.Run(t, cmd)
		if r.Code != 0 {
			t.Errorf("with %s vkcube ends with %d\n%s\n%s", layers, r.Code, r.Stdout, r.Stderr)
		}
		return handles.ReplaceAllString(r.Stdout, "HANDLE")
	}
	bare := said(validation)
	for _, layers := range [][]string{{ours, validation}, {validation, ours}} {
		if got := said(layers...); got != bare {
			t.Errorf("with %s it says\n%s\nand without ours\n%s", layers, got, bare)
		}
	}
	for _, other := range []string{mangohud, overlay} {
		said(ours, other)
		said(other, ours)
	}
}

// Parts of vulkaninfo's output that the library changes: the memory sizes, and the list of layers.
var (
	heapSizes  = regexp.MustCompile(`(?m)^\s*(size|budget|usage) +=.*\n`)
	layerCount = regexp.MustCompile(`Layers: count = \d+\n=+`)
	ourLayer   = regexp.MustCompile(`(?m)^` + ours + `.*\n(\t.*\n)*\n?`)
)

// TestVulkaninfo: a program that queries everything sees the same with and without the library,
// except for the memory sizes.
func TestVulkaninfo(t *testing.T) {
	t.Parallel()
	m := machine(t, "1G")
	same := func(r rig.Result) string {
		if r.Code != 0 {
			t.Errorf("vulkaninfo ends with %d\n%s", r.Code, r.Stderr)
		}
		text := ourLayer.ReplaceAllString(r.Stdout, "")
		return heapSizes.ReplaceAllString(layerCount.ReplaceAllString(text, ""), "")
	}
	bare := rig.Run(t, vulkan(m, m.Command(m.Env(), "vulkaninfo")))
	if !strings.Contains(bare.Stdout, "llvmpipe") || len(heapSizes.FindAllString(bare.Stdout, -1)) == 0 {
		t.Fatalf("vulkaninfo shows no driver:\n%s", bare.Stdout)
	}
	budget := rig.Run(t, run(m, []string{"--memory", "64M"}, "vulkaninfo"))
	if !strings.Contains(budget.Stdout, "67108864 (0x04000000) (64.00 MiB)") {
		t.Errorf("no heap has 64 MiB:\n%s", heapSizes.FindAllString(budget.Stdout, -1))
	}
	if got, want := same(budget), same(bare); got != want {
		t.Errorf("under a budget it says\n%s\nwithout the library\n%s", got, want)
	}
	off := rig.Run(t, vulkan(m, m.Command(append(m.PreloadEnv(), "GPUARB_DISABLE=1"), "vulkaninfo"), alone(m)...))
	if got, want := same(off), same(bare); got != want {
		t.Errorf("turned off it says\n%s\nwithout the library\n%s", got, want)
	}
	idle(m)
}
