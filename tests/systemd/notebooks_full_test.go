//go:build full

package systemd

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file plays days of notebook users on a booted machine: numba in Jupyter's own kernel, in a user service and in logins, all
// under `gpuarb enable`. The oracle is what each cell prints, and what its user reads. tests/scenes plays the same days with
// servers and scripts; tests/notebooks has the kernel alone.

// students are the members of the group whose requests wait. dan is in no group, and his requests are refused.
var students = []string{"ann", "bob", "eve", "fay"}

// classroom boots a machine for notebooks. It has two cards of 8 GiB, and each context costs 64 MiB. All users' programs are under gpuarb.
func classroom(t *testing.T) *host {
	h := boot(t, "python3-numba", "python3-ipykernel", "python3-jupyter-client", "dbus-user-session")
	here(t, "cp", "tests/systemd/testdata/notebook.py", h.root+"/usr/bin/notebook.py")
	h.shell("groupadd students; useradd --create-home --shell /bin/sh dan")
	for _, name := range students {
		h.shell("useradd --create-home --shell /bin/sh --groups students " + name)
	}
	// The simulated driver looks for its state in a folder of the user's.
	h.shell("for user in " + strings.Join(students, " ") + " dan; do ln -s simcuda-0 /dev/shm/simcuda-$(id -u $user); done")
	h.shell("printf '[[rule]]\\nmatch.group = \"students\"\\non_full = \"wait\"\\n' >/etc/gpuarb/conf.d/students.toml; systemctl reload gpuarbd")
	h.shell("gpuarb enable --group students; gpuarb enable --user dan; loginctl enable-linger ann")
	return h
}

// notebook is a user's notebook: a program that answers each cell.
type notebook struct {
	*rig.Program
	h *host
}

// login opens a notebook with a kernel in a login of the user.
func (h *host) login(user, kernel string) *notebook {
	h.t.Helper()
	return h.open(user, "exec python3 /usr/bin/notebook.py "+kernel)
}

// service opens a notebook in a service of the user's own systemd.
func (h *host) service(user string) *notebook {
	h.t.Helper()
	return h.open(user, "XDG_RUNTIME_DIR=/run/user/$(id -u) exec systemd-run --user --quiet --wait --pipe --unit=notebook python3 /usr/bin/notebook.py python3")
}

// open starts a notebook by a command of the user's.
func (h *host) open(user, command string) *notebook {
	h.t.Helper()
	n := &notebook{h.Interact(h.command(fmt.Sprintf("exec su --login %s --command '%s'", user, command))), h}
	h.t.Cleanup(func() {
		if h.t.Failed() {
			h.t.Logf("%s's notebook and the log of its server:\n%s", user, n.Stderr())
		}
	})
	return n
}

// begin starts a cell, and does not wait for its end.
func (n *notebook) begin(cell string) {
	n.h.t.Helper()
	text, err := json.Marshal(cell)
	if err != nil {
		n.h.t.Fatal(err)
	}
	n.Tell(string(text))
}

// run runs a cell, which must print the wanted line.
func (n *notebook) run(cell, want string) {
	n.h.t.Helper()
	n.begin(cell)
	if got := n.Line(); got != want {
		n.h.t.Fatalf("%s\n%s\nwant %s\n%s", cell, got, want, n.Stderr())
	}
}

// reads waits until a text has appeared in the notebook or in its server's log.
func (n *notebook) reads(pattern string) {
	n.h.t.Helper()
	bounded.Until(n.h.t, "the user reads "+pattern, func() bool { return regexp.MustCompile(pattern).MatchString(n.Stderr()) })
}

// The cells. load(n) allocates n layers of 1 GiB, and serve() answers one request with scratch memory.
const (
	setup = `
import os, numpy
from numba import cuda
layers = []
def load(count):
    for _ in range(count):
        layers.append(cuda.device_array(1 << 30, dtype=numpy.uint8))
    print("loaded", len(layers))
def serve():
    scratch = cuda.device_array(64 << 20, dtype=numpy.uint8)
    del scratch
    cuda.current_context().deallocations.clear()
    print("answer")
print(os.getpid())
`
)

// prepare runs the cell setup, and returns the PID of the kernel on the machine.
func (n *notebook) prepare() string {
	n.h.t.Helper()
	n.begin(setup)
	return n.Line()
}

// TestFullSystemdNotebooks: the third notebook on a card cannot load all of its model, and waits. The first two continue to work. The
// third user and a fourth are told who is ahead. When the first notebook ends, the others are served.
func TestFullSystemdNotebooks(t *testing.T) {
	h := classroom(t)
	ann, bob, eve := h.service("ann"), h.login("bob", "python3"), h.login("eve", "python3")
	ann.prepare()
	bob.prepare()
	third := eve.prepare()
	ann.run("load(3)", "loaded 3")
	bob.run("load(3)", "loaded 3")
	if got := h.as("ann", "gpuarb ps"); !strings.Contains(got, "ann") {
		t.Errorf("the notebook in a user service is not under gpuarb:\n%s", got)
	}
	eve.run("load(1)", "loaded 1")
	eve.begin("load(2)")
	eve.reads(`waits for 1 GiB on GPU 0, position 1: `)
	for range 5 {
		ann.run("serve()", "answer")
		bob.run("serve()", "answer")
	}
	if got := h.as("eve", "gpuarb why"); !strings.Contains(got, "ann") || !strings.Contains(got, "bob") {
		t.Errorf("gpuarb why does not tell eve who holds the card:\n%s", got)
	}

	// The fourth notebook needs little, but comes after the third. It is told so, and of the other card.
	fay := h.login("fay", "python3")
	fay.prepare()
	fay.begin("serve()")
	fay.reads(`free, but kept for python3[^ ]*\[` + third + `\], which has waited`)
	fay.reads("GPU 1 has .* free: `gpuarb run --device 1`, or `--device emptiest`")
	if got := h.as("fay", "gpuarb why"); !strings.Contains(got, "free, but kept for python3.11["+third+"]") || !strings.Contains(got, "→ GPU 1 has") {
		t.Errorf("gpuarb why does not tell fay who is ahead:\n%s", got)
	}
	bob.run("serve()", "answer")
	if !eve.Silent() || !fay.Silent() {
		t.Error("a notebook that should wait has gone on")
	}
	ann.End()
	eve.Expect("loaded 3")
	fay.Expect("answer")
	for _, n := range []*notebook{bob, eve} {
		if n.run("serve()", "answer"); n == bob && strings.Contains(n.Stderr(), "waits") {
			t.Errorf("a notebook that held its memory had to wait:\n%s", n.Stderr())
		}
	}

	for _, n := range []*notebook{bob, eve, fay} {
		n.End()
	}
}

// TestFullSystemdNotebooksTwoCards: all notebooks land on the first card. One that is refused there is told of the second card, and its user
// then chooses the page's kernel with `--device emptiest`.
func TestFullSystemdNotebooksTwoCards(t *testing.T) {
	h := classroom(t)
	spec := strings.Replace(blocksOf(t, "admin/notebooks.md", "json")[0], `"--memory", "4G"`, `"--device", "emptiest"`, 1)
	h.shell("mkdir --parents /usr/local/share/jupyter/kernels/emptiest; cat >/usr/local/share/jupyter/kernels/emptiest/kernel.json <<'.'\n" + spec + ".")
	ann, dan := h.service("ann"), h.login("dan", "python3")
	ann.prepare()
	ann.run("load(6)", "loaded 6")
	dan.prepare()
	dan.begin("load(4)")
	if got := dan.Line(); !strings.Contains(got, "CUDA_ERROR_OUT_OF_MEMORY") {
		t.Errorf("the cell ends with %q", got)
	}
	dan.reads("GPU 1 has .* free: `gpuarb run --device 1`, or `--device emptiest`")
	dan.End()

	dan = h.login("dan", "emptiest")
	dan.prepare()
	dan.run("load(4)", "loaded 4")
	for _, row := range strings.Split(h.shell("gpuarb ps"), "\n")[1:] {
		if f := strings.Fields(row); f[1] == "ann" && f[2] != "0" || f[1] == "dan" && f[2] != "1" {
			t.Errorf("a notebook uses the other card: %s", row)
		}
	}
	ann.End()
	dan.End()
}
