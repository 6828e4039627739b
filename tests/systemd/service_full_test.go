//go:build full

package systemd

import (
	"bufio"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file reloads, restarts, kills, upgrades and stops the service. A reader of /gpu/leases must never see wrong rows meanwhile, and
// programs must keep their budgets. machine_test.go boots the machine.

const (
	budget = 64 << 20
	held   = 48 << 20
)

// TestFullSystemdService: whatever happens to the service, each successful read of /gpu/leases shows
// the right rows, and the programs continue under their budgets.
func TestFullSystemdService(t *testing.T) {
	h := boot(t)
	if got := h.shell("systemctl is-active gpuarbd.socket gpuarbd.service"); got != "active\nactive" {
		t.Fatalf("the units are %q", got)
	}
	if rows := h.rows(h.shell("cat /gpu/leases")); len(rows) != 0 {
		t.Fatalf("leases without programs: %q", rows)
	}
	upgrade := filepath.Join(h.root, "usr/bin/gpuarbd.new")
	here(t, "go", "build", "-trimpath", "-ldflags", "-X github.com/gpuarb/gpuarb/internal/version.Version=9.9.9-upgrade", "-o", upgrade, "./cmd/gpuarbd")

	var programs []*rig.Program
	for range 3 {
		p := h.Interact(h.command(fmt.Sprintf("exec gpuarb run --memory %d -- cudaprog-dlsym", budget)))
		p.Want(fmt.Sprintf("alloc a %d", held), "ok")
		programs = append(programs, p)
	}
	want := h.rows(h.shell("cat /gpu/leases"))
	if len(want) != 3 {
		t.Fatalf("rows %q, want those of 3 programs", want)
	}
	for _, step := range []struct {
		name, script string
		always       bool // /gpu is served at every moment
	}{
		{"reload", "echo '[defaults]\nstreams.max = 100' >/etc/gpuarb/conf.d/test.toml && systemctl reload gpuarbd", true},
		{"restart", "systemctl restart gpuarbd", false},
		{"SIGKILL", "old=$(systemctl show -P MainPID gpuarbd); systemctl kill -s KILL gpuarbd; while [ $(systemctl show -P MainPID gpuarbd) = $old ]; do :; done", false},
		{"upgrade", "mv /usr/bin/gpuarbd.new /usr/bin/gpuarbd && systemctl restart gpuarbd && grep 9.9.9 /gpu/version", false},
		{"stop", "systemctl stop gpuarbd.socket gpuarbd.service && [ -z \"$(ls /gpu)\" ] && ! mountpoint -q /gpu", false},
		{"start", "systemctl start gpuarbd.socket gpuarbd.service", false},
	} {
		r := h.read(want, step.always)
		h.shell(step.script)
		if step.name != "stop" {
			h.served(want)
		}
		seen := r.end()
		t.Logf("%s: a reader saw %s", step.name, seen)
		for _, p := range programs {
			p.Want("free a", "ok")
			p.Want(fmt.Sprintf("alloc a %d", held), "ok")
			p.Want(fmt.Sprintf("alloc b %d", budget-held+1), "err 2")
		}
	}
	if got := h.shell("grep -c ' /gpu ' /proc/self/mounts"); got != "1" {
		t.Errorf("%s mounts on /gpu, want 1", got)
	}
	for _, p := range programs {
		p.End()
	}
	h.served(nil)
	if got := h.shell("journalctl --no-pager --boot --unit=gpuarbd.service --grep 'panic|goroutine|stop-sigterm.*timed out' || true"); strings.Contains(got, "panic") || strings.Contains(got, "timed out") {
		t.Errorf("the journal:\n%s", got)
	}
	// With the socket unit alone, the first client starts the daemon.
	h.shell("systemctl stop gpuarbd.service && gpuarb ps")
	bounded.Until(t, "the service is active", func() bool { return h.command("systemctl is-active gpuarbd.service").Run() == nil })
	h.unmountable()
}

// unmountable starts the service while a file lies in /gpu. The daemon must end with the reason of the process that mounts for it,
// and not say that it has no right to mount.
func (h *host) unmountable() {
	h.t.Helper()
	h.shell("systemctl stop gpuarbd.socket gpuarbd.service && touch /gpu/mine && ! systemctl start gpuarbd.service")
	bounded.Until(h.t, "the daemon says why it does not start", func() bool {
		out, _ := h.command("journalctl --no-pager --boot --unit=gpuarbd.service --output=json --output-fields=MESSAGE | grep -c 'mount /gpu: the directory is not empty (it holds mine)'").Output()
		n := 0
		_, _ = fmt.Sscan(string(out), &n)
		return n >= 2 // the process that mounts says it, and the daemon
	})
	h.shell("rm /gpu/mine && systemctl reset-failed gpuarbd.socket gpuarbd.service && systemctl start gpuarbd.socket gpuarbd.service && mountpoint -q /gpu")
}

// rows returns the process, bytes and budget of each lease in the table.
func (h *host) rows(leases string) []string {
	var rows []string
	for i, line := range strings.Split(strings.TrimSpace(leases), "\n") {
		if f := strings.Fields(line); i > 0 && len(f) > 6 {
			rows = append(rows, strings.Join([]string{f[0], f[4], f[5]}, " "))
		}
	}
	slices.Sort(rows)
	return rows
}

// served waits until /gpu/leases has the wanted rows.
func (h *host) served(want []string) {
	h.t.Helper()
	bounded.Until(h.t, "/gpu/leases is served and has the rows", func() bool {
		out, err := h.command("cat /gpu/leases").Output()
		return err == nil && slices.Equal(h.rows(string(out)), want)
	})
}

// reader is a shell on the machine that runs cat in a loop.
type reader struct {
	h      *host
	want   []string
	always bool // a daemon answers at every moment
	cmd    *exec.Cmd
	done   chan struct{}
	times  map[string]int // how many reads had each result
}

// read starts a reader. A successful read must show the rows. A failed read must have one of the errors that
// say that nothing is mounted, or that the daemon behind the mount is gone.
func (h *host) read(want []string, always bool) *reader {
	r := &reader{h: h, want: want, always: always, done: make(chan struct{}), times: make(map[string]int)}
	r.cmd = h.command(`while :; do timeout 30 cat /gpu/leases 2>&1; echo "status $?"; done`)
	out, err := r.cmd.StdoutPipe()
	if err == nil {
		err = r.cmd.Start()
	}
	if err != nil {
		h.t.Fatal(err)
	}
	go func() {
		defer close(r.done)
		var text strings.Builder
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if status, ok := strings.CutPrefix(lines.Text(), "status "); ok {
				r.look(status, text.String())
				text.Reset()
			} else {
				text.WriteString(lines.Text() + "\n")
			}
		}
	}()
	return r
}

// look checks the result of one read.
func (r *reader) look(status, text string) {
	rows := r.h.rows(text)
	_, reason, _ := strings.Cut(strings.TrimSpace(text), "/gpu/leases: ")
	switch {
	case status == "0" && slices.Equal(rows, r.want):
		r.times["the rows"]++
	case status == "0":
		r.h.t.Errorf("a reader saw %q, want %q", rows, r.want)
	case r.always || !slices.Contains(nobodyThere, reason):
		r.h.t.Errorf("a reader was told %q (status %s)", text, status)
	default:
		r.times[reason]++
	}
}

// nobodyThere are the errors of a read without a daemon: the filesystem is not mounted, the daemon behind
// the mount has ended, or it ended during the read. The kernel says "Input/output error" for a request that the daemon was taking
// when it was killed.
var nobodyThere = []string{"No such file or directory", "Transport endpoint is not connected", "Software caused connection abort", "Input/output error"}

// end stops the reader and describes what it saw.
func (r *reader) end() string {
	bounded.Kill(r.cmd)
	<-r.done
	_ = r.cmd.Wait()
	return fmt.Sprint(r.times)
}
