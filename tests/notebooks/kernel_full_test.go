//go:build full

package notebooks

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file runs the kernel and the hub's line of docs/admin/notebooks.md as they stand on the page.
// testdata/notebook.py, server.py and hub.py act as the user, and print what the notebook gets: their output is
// the comparison.

// notebook returns a machine with the kernel of docs/admin/notebooks.md, and an environment in which a notebook server finds that kernel.
func notebook(t *testing.T) (m *rig.Machine, env []string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/admin/notebooks.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(page), "```json\n")
	spec, _, ends := strings.Cut(rest, "```")
	if !found || !ends {
		t.Fatal("the page has no kernel")
	}
	m = rig.New(t, rig.Options{Devices: "8G", NoMount: true})
	kernel := filepath.Join(m.Dir, "kernels/gpu/kernel.json")
	if err := os.MkdirAll(filepath.Dir(kernel), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(kernel, []byte(spec), 0o644); err != nil {
		t.Fatal(err)
	}
	return m, append(m.Env(), "PATH="+filepath.Dir(rig.Build(t, "gpuarb"))+":/usr/bin:/bin", "GPUARB_SOCKET="+m.Socket, // with the python3 of Debian, which has the kernel
		"JUPYTER_PATH="+m.Dir, "JUPYTER_RUNTIME_DIR="+m.Dir, "IPYTHONDIR="+m.Dir, "HOME="+m.Dir)
}

// TestFullKernel: the page's kernel has 4 GiB after each restart, can be interrupted like any kernel, and frees all memory at its end.
func TestFullKernel(t *testing.T) {
	m, env := notebook(t)
	r := rig.RunFor(t, bounded.Lifetime, m.Command(env, "/usr/bin/python3", "testdata/notebook.py"))
	const life = "\n0 2 0\nKeyboardInterrupt\n"
	if want := life + life + "over\n"; r.Code != 0 || r.Stdout != want {
		t.Errorf("exit status %d, want %q, got\n%s\n%s", r.Code, want, r.Stdout, r.Stderr)
	}
	bounded.Until(t, "the kernel holds nothing", func() bool { return len(m.Snapshot().Leases) == 0 })
}

// TestFullKilledServer checks that the page's kernel ends when its notebook server is killed, as a kernel without gpuarb does.
func TestFullKilledServer(t *testing.T) {
	m, env := notebook(t)
	p := m.Begin(m.Command(env, "/usr/bin/python3", "testdata/server.py"))
	kernel, err := strconv.Atoi(p.Line())
	if err != nil {
		t.Fatal(err)
	}
	if held := m.HeldBy(kernel, 0).Bytes; held != 3<<30 {
		t.Errorf("the kernel, process %d, holds %d bytes", kernel, held)
	}
	p.Signal(unix.SIGKILL)
	bounded.Until(t, "the kernel has ended", func() bool {
		_, err := os.Stat(fmt.Sprintf("/proc/%d", kernel))
		return errors.Is(err, fs.ErrNotExist)
	})
	bounded.Until(t, "its job has ended", func() bool { return len(m.Snapshot().Jobs) == 0 && len(m.Snapshot().Leases) == 0 })
}

// TestFullHub: with the page's line in a JupyterHub's configuration, a notebook of a user's server has 8 GiB.
func TestFullHub(t *testing.T) {
	page, err := os.ReadFile("../../docs/admin/notebooks.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(page), "```python\n")
	line, _, ends := strings.Cut(rest, "```")
	if !found || !ends {
		t.Fatal("the page has no line for a hub")
	}
	m := rig.New(t, rig.Options{Devices: "16G", NoMount: true})
	// The hub needs a folder for its users, and passes only the configured variables to their servers.
	env := append(m.Env(), "PATH="+filepath.Dir(rig.Build(t, "gpuarb"))+":/usr/bin:/bin", "GPUARB_SOCKET="+m.Socket,
		"JUPYTER_RUNTIME_DIR="+m.Dir, "IPYTHONDIR="+m.Dir, "HOME="+m.Dir,
		"NODE_PATH=/usr/share/nodejs") // where Debian has the modules of the hub's proxy, for any version of node
	r := rig.RunFor(t, bounded.Lifetime, m.Command(env, "/usr/bin/python3", "testdata/hub.py", m.Dir, line))
	if want := "0 0\n0 2 0\nover\n"; r.Code != 0 || r.Stdout != want {
		t.Errorf("exit status %d, want %q, got\n%s\n%s", r.Code, want, r.Stdout, r.Stderr)
	}
	bounded.Until(t, "the user's server holds nothing", func() bool { return len(m.Snapshot().Leases) == 0 && len(m.Snapshot().Jobs) == 0 })
}
