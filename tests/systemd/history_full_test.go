//go:build full

package systemd

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/internal/report"
	"github.com/gpuarb/gpuarb/tests/bounded"
)

// This file shows that the service keeps the history of jobs in its StateDirectory, through restarts and kills. tests/history has the
// history's figures, without systemd.

// TestFullSystemdHistory: the process that keeps the history has a user of its own, and alone may read the folder. Users see their jobs
// and root those of all users. After a restart and SIGKILL of the daemon, and SIGKILL of that process, all jobs are there, and a program that ran
// meanwhile is one job with its GiB-hours.
func TestFullSystemdHistory(t *testing.T) {
	h := boot(t)
	for _, name := range []string{"ann", "bob"} {
		h.shell("useradd --create-home --shell /bin/sh " + name + "; ln -s simcuda-0 /dev/shm/simcuda-$(id -u " + name + ")")
	}
	h.keeper("")
	if got, want := h.shell("stat -c '%U:%G %a' /var/lib/gpuarb/history /var/lib/gpuarb/history/history.db"), "gpuarb-history:gpuarb-history 700\ngpuarb-history:gpuarb-history 600"; got != want {
		t.Errorf("the folder and the file are %q, want %q", got, want)
	}
	if got := h.shell("gpuarb doctor || true"); !strings.Contains(got, "the history of jobs is kept in /var/lib/gpuarb/history") {
		t.Errorf("doctor does not say where the history is:\n%s", got)
	}

	before := time.Now()
	p := h.Interact(h.command("exec su --login ann --command 'exec gpuarb run --name server -- cudaprog-dlsym'"))
	p.Want("alloc a 1G", "ok")
	after := time.Now()
	jobs := 0
	job := func() {
		jobs++
		for _, user := range []string{"ann", "bob"} {
			h.as(user, fmt.Sprintf(`gpuarb run --name %s-%d -- cudaprog-dlsym "alloc a 64M"`, user, jobs))
		}
	}
	job()
	const kill = "systemctl kill -s KILL gpuarbd"
	for _, script := range []string{"systemctl restart gpuarbd", kill, "pkill -KILL -u gpuarb-history", "systemctl stop gpuarbd.service; " + kill + "; systemctl start gpuarbd.service"} {
		old := h.keeper("")
		h.shell(script + " 2>/dev/null || true")
		h.keeper(old)
		h.served(h.rows(h.shell("cat /gpu/leases")))
		job()
	}
	least := time.Since(after)
	p.End()
	most := time.Since(before)

	bounded.Until(t, "all jobs have ended in the history", func() bool {
		return len(ended(h, "root", "root")) == 2*jobs+1
	})
	var servers []report.EndedJob
	for _, e := range ended(h, "ann", "ann") {
		if *e.Name == "server" {
			servers = append(servers, e)
		} else if e.Peak != 64<<20 {
			t.Errorf("%s has a peak of %d bytes", *e.Name, e.Peak)
		}
	}
	// The last second before each of the four deaths may be lost.
	if len(servers) != 1 || servers[0].Held*3600 < least.Seconds()-4*1.5 || servers[0].Held*3600 > most.Seconds() {
		t.Errorf("the server held 1 GiB for %v to %v: %+v", least, most, servers)
	}
	if got := len(ended(h, "bob", "bob")); got != jobs {
		t.Errorf("bob sees %d jobs, want %d", got, jobs)
	}
	for user, want := range map[string][]string{"ann": {"ann"}, "bob": {"bob"}, "root": {"ann", "bob"}} {
		var keys []string
		for _, r := range listed[report.Total](h, user, "gpuarb report --by user --json") {
			keys = append(keys, *r.Key)
		}
		if slices.Sort(keys); !slices.Equal(keys, want) {
			t.Errorf("the report of %s has the users %q, want %q", user, keys, want)
		}
	}
	h.shell("journalctl --sync")
	if got := h.shell("journalctl --no-pager --unit=gpuarbd.service --grep 'history cannot' || true"); strings.Contains(got, "cannot be written") {
		t.Errorf("the journal:\n%s", got)
	}
}

// keeper waits until a process of gpuarb-history other than old keeps the history and its socket answers, and returns the PID.
func (h *host) keeper(old string) (pid string) {
	h.t.Helper()
	bounded.Until(h.t, "the history is kept", func() bool {
		out, err := h.command("gpuarb history >/dev/null && pgrep -u gpuarb-history -f keep-history").Output()
		pid = strings.TrimSpace(string(out))
		return err == nil && pid != old && !strings.Contains(pid, "\n")
	})
	return pid
}

// listed returns the rows that a user's command prints as JSON.
func listed[T any](h *host, user, command string) (all []T) {
	h.t.Helper()
	if text := h.as(user, command); json.Unmarshal([]byte(text), &all) != nil {
		h.t.Fatalf("%s: %s prints %s", user, command, text)
	}
	return all
}

// ended returns the jobs that a user sees in the history. All must be of the owner, unless the owner is root.
func ended(h *host, user, owner string) []report.EndedJob {
	h.t.Helper()
	all := listed[report.EndedJob](h, user, "gpuarb history --limit 0 --json")
	for _, e := range all {
		if owner != "root" && e.User != owner {
			h.t.Errorf("%s sees a job of %s", user, e.User)
		}
	}
	return all
}
