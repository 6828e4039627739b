package e2e

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This test holds that the modes of the daemon's files do not depend on the umask of its start.

// TestUmask: the daemon's socket, folders and files have the same modes, whatever umask the daemon is started
// with.
func TestUmask(t *testing.T) {
	t.Parallel()
	want := ""
	for _, umask := range []string{"022", "000", "027", "077", "777"} {
		m := rig.New(t, rig.Options{Devices: "8G", Stopped: true})
		script := filepath.Join(m.Dir, "gpuarbd")
		text := fmt.Sprintf("#!/bin/sh\numask %s\nexec %s \"$@\"\n", umask, rig.Build(t, "gpuarbd"))
		if err := bounded.WriteProgram(script, []byte(text)); err != nil {
			t.Fatal(err)
		}
		m.Socket = filepath.Join(m.Dir, "run", "gpuarb.sock")
		m.Use(script)
		m.Start()
		m.Interact(m.Command(m.PreloadEnv(), rig.Build(t, "programs/cudaprog-dlsym"))).End()
		rig.Eventually(t, "the program's job has ended", func() bool { return len(m.Snapshot().Jobs) == 0 })
		got := modes(t, filepath.Join(m.Dir, "run"), filepath.Join(m.Dir, "gpu"))
		if want == "" {
			want = got
		}
		if got != want {
			t.Errorf("umask %s:\n%swant, as with 022:\n%s", umask, got, want)
		}
		m.Stop()
	}
}

// modes lists the entries of some folders with their modes, without their sizes.
func modes(t *testing.T, dirs ...string) string {
	t.Helper()
	var text strings.Builder
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.Name() == "history.sock" { // it comes and goes while the history's process cannot enter the folder
				return err
			}
			info, err := entry.Info()
			if err == nil {
				fmt.Fprintln(&text, info.Mode(), strings.TrimPrefix(path, filepath.Dir(dir)))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return text.String()
}
