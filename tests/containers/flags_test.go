package containers

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file checks the flags that `gpuarb run` prints before it starts a container engine. The engine is a script that
// prints its arguments. rootless_full_test.go gives the flags to a real podman.

// flagsOf runs an engine under gpuarb run, and returns the flags that were advised, and the arguments that the engine got.
func flagsOf(t *testing.T, m *rig.Machine, i installation, words ...string) (flags []string, got string) {
	t.Helper()
	r := rig.Run(t, m.Command(m.Env(), i.command(), append([]string{"--socket", m.Socket, "run", "--memory", "64M", "--"}, words...)...))
	if r.Code != 0 {
		t.Fatalf("%+v", r)
	}
	_, advice, found := strings.Cut(r.Stderr, " run: ")
	if !found && r.Stderr != "" {
		t.Fatalf("it said %q", r.Stderr)
	}
	return strings.Fields(advice), strings.TrimSpace(r.Stdout)
}

// TestFlagsForContainers checks the flags before podman run and docker create: all that are missing, and none if the
// command line has them or does not start a container. The command line itself is never changed.
func TestFlagsForContainers(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "1G", NoMount: true})
	i := installed(t, m)
	for _, name := range []string{"podman", "docker"} {
		if err := bounded.WriteProgram(filepath.Join(m.Dir, name), []byte("#!/bin/sh\necho \"$*\"\n")); err != nil {
			t.Fatal(err)
		}
	}
	podman, docker := filepath.Join(m.Dir, "podman"), filepath.Join(m.Dir, "docker")
	want := strings.Join([]string{
		"-v", i.folder() + ":/usr/lib/gpuarb:ro",
		"-v", filepath.Join(m.Dir, "client") + ":/run/gpuarb/client:ro",
		"-v", i.folder() + "/container/ld.so.preload:/etc/ld.so.preload:ro",
		"-v", i.folder() + "/container/gpuarb_layer.json:/etc/vulkan/implicit_layer.d/gpuarb_layer.json:ro",
		"-e", "LD_PRELOAD=/usr/lib/gpuarb/libgpuarb.so", "-e", "GPUARB_VULKAN=1", "-e", "GPUARB_JOB",
	}, " ")
	for _, words := range [][]string{{podman, "run", "IMAGE"}, {podman, "--root", "/x", "container", "run", "IMAGE"}, {docker, "create", "IMAGE", "exec"}} {
		flags, got := flagsOf(t, m, i, words...)
		if strings.Join(flags, " ") != want {
			t.Errorf("%v: the flags are %q\nwant %q", words, flags, want)
		}
		if got != strings.Join(words[1:], " ") {
			t.Errorf("%v: the engine got %q", words, got)
		}
	}
	all := append(append([]string{podman, "run"}, strings.Fields(want)...), "IMAGE")
	for _, words := range [][]string{all, {podman, "run", "--device", "gpuarb.dev/memory=1G", "IMAGE"}, {podman, "exec", "run"}, {podman, "ps"}, {"echo", "podman", "run"}} {
		if flags, _ := flagsOf(t, m, i, words...); len(flags) != 0 {
			t.Errorf("%v: it says %q", words, flags)
		}
	}
	if flags, _ := flagsOf(t, m, i, append(append([]string{podman, "run"}, strings.Fields(want)[2:]...), "IMAGE")...); strings.Join(flags, " ") != "-v "+i.folder()+":/usr/lib/gpuarb:ro" {
		t.Errorf("without the library's folder it says %q", flags)
	}
}
