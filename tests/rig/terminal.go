package rig

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gpuarb/gpuarb/tests/bounded"
)

// This file runs commands on a real terminal, tmux, for tests of gpuarb top and of completion in shells.

// Terminal is a terminal of tmux with a fixed size, in which a program runs.
type Terminal struct {
	m      *Machine
	socket string
}

// Terminal runs a shell script on a terminal, with $G for gpuarb. The last screen of the script
// stays when the script has ended: its shell waits, because tmux may lose the last lines of a program
// whose terminal closes. The script has the environment of Machine.Gpuarb, in a UTF-8 locale,
// and the variables in environ.
func (m *Machine) Terminal(width, height int, script string, environ ...string) *Terminal {
	m.T.Helper()
	dir, err := os.MkdirTemp(m.Dir, "tmux-")
	if err != nil {
		m.fatalf("%v", err)
	}
	t := &Terminal{m: m, socket: filepath.Join(dir, "s")}
	config := filepath.Join(dir, "conf")
	if err := os.WriteFile(config, []byte("set -g remain-on-exit on\nset -g status off\nset -s escape-time 0\nset -g mouse on\n"), 0o600); err != nil {
		m.fatalf("%v", err)
	}
	cmd := bounded.Command(m.T, m.o.Life, "tmux", "-u", "-S", t.socket, "-f", config, "new-session", "-d",
		"-x", strconv.Itoa(width), "-y", strconv.Itoa(height), "exec /bin/sh -c '"+script+"; read -r end'")
	cmd.Env = append(m.Env(), "GPUARB_SOCKET="+m.Socket, "G="+Build(m.T, "gpuarb"), "LC_ALL=C.UTF-8")
	cmd.Env = append(cmd.Env, environ...)
	if out, err := cmd.CombinedOutput(); err != nil {
		m.fatalf("tmux: %v\n%s", err, out)
	}
	m.T.Cleanup(func() { _ = bounded.Command(m.T, Patience, "tmux", "-S", t.socket, "kill-server").Run() })
	return t
}

// tmux runs a tmux command, and returns what it prints.
func (t *Terminal) tmux(args ...string) string {
	t.m.T.Helper()
	out, err := bounded.Command(t.m.T, Patience, "tmux", append([]string{"-S", t.socket}, args...)...).CombinedOutput()
	if err != nil {
		t.m.fatalf("tmux %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// Press presses keys: letters, or tmux's names of keys, such as "Enter" or "C-c".
func (t *Terminal) Press(keys ...string) {
	t.m.T.Helper()
	t.tmux(append([]string{"send-keys", "--"}, keys...)...)
}

// Screen returns the text on the screen, without attributes.
func (t *Terminal) Screen() string { t.m.T.Helper(); return t.tmux("capture-pane", "-p") }

// Painted returns the text on the screen with attributes, as escape sequences.
func (t *Terminal) Painted() string { t.m.T.Helper(); return t.tmux("capture-pane", "-p", "-e") }

// PID returns the PID of the script, or of the program that replaced it by exec.
func (t *Terminal) PID() int {
	t.m.T.Helper()
	pid, err := strconv.Atoi(strings.TrimSpace(t.tmux("display-message", "-p", "#{pane_pid}")))
	if err != nil {
		t.m.fatalf("tmux: %v", err)
	}
	return pid
}

// Await waits until all of the texts are on the screen.
func (t *Terminal) Await(texts ...string) {
	t.m.T.Helper()
	t.until(texts, true)
}

// AwaitGone waits until none of the texts is on the screen.
func (t *Terminal) AwaitGone(texts ...string) {
	t.m.T.Helper()
	t.until(texts, false)
}

func (t *Terminal) until(texts []string, there bool) {
	t.m.T.Helper()
	screen := ""
	defer func() {
		if t.m.T.Failed() {
			t.m.T.Logf("the screen:\n%s", screen)
		}
	}()
	Eventually(t.m.T, "on the screen: "+strings.Join(texts, ", "), func() bool {
		screen = t.Screen()
		for _, text := range texts {
			if strings.Contains(screen, text) != there {
				return false
			}
		}
		return true
	})
}
