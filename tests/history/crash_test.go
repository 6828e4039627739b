package history

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	_ "modernc.org/sqlite" // to change the version of a file

	"github.com/gpuarb/gpuarb/archive/rows"
	"github.com/gpuarb/gpuarb/internal/report"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file checks what the history has after a crash, and with a file or a disk that cannot be used.

// folder is the folder of the history of a machine.
func folder(m *rig.Machine) string { return filepath.Join(m.Dir, "state", "history") }

// keeper returns the PID of the process that keeps the history of a machine; 0: there is none.
func keeper(m *rig.Machine) int {
	m.T.Helper()
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range lines {
		text, _ := os.ReadFile(path)
		if string(text) != "gpuarbd\x00"+rows.Command+"\x00" {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if at, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/4", pid)); strings.HasPrefix(at, folder(m)) || opensStore(m, pid) {
			return pid
		}
	}
	return 0
}

// opensStore reports whether a process has the store of a machine open.
func opensStore(m *rig.Machine, pid int) bool {
	links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, link := range links {
		if at, _ := os.Readlink(link); strings.HasPrefix(at, folder(m)+"/") {
			return true
		}
	}
	return false
}

// kept waits until the history is kept.
func kept(m *rig.Machine) {
	m.T.Helper()
	rig.Eventually(m.T, "the history is kept", func() bool {
		_, ok := asked[report.Total](m, "report")
		return ok
	})
}

// TestForty: forty jobs of one second, ten at a time, are in the report with what they held.
func TestForty(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{NoMount: true, Devices: "16G"})
	kept(m)
	const jobs, mibs = 40, 512
	var mu sync.Mutex
	var all sync.WaitGroup
	var total span
	places := make(chan struct{}, 10)
	for range jobs {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			p := m.Interact(run(m, "--name", "forty", "--device", "0"))
			s := hold(p, strconv.Itoa(mibs)+"M", time.Second)
			mu.Lock()
			defer mu.Unlock()
			total.least += s.least
			total.most += s.most
		})
	}
	all.Wait()
	ended(m, jobs)
	r := reported(m, "name", jobs)["forty"]
	within(t, "forty jobs", r.Held, mibs*mib, total)
	if r.Jobs != jobs || r.Peak != mibs*mib {
		t.Errorf("%+v", r)
	}
}

// TestKilledAtRandom: the daemon and the history's process are killed at random moments under a running job. The job's row is never older than
// a second when a kill comes, and the sum over all restarts is what the job held while a daemon ran.
func TestKilledAtRandom(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{NoMount: true})
	kept(m)
	p := m.Interact(run(m, "--name", "long", "--device", "0"))
	p.Want("alloc a 1G", "ok")
	began := time.Now()
	var down time.Duration // time without a daemon
	for i := range 8 {
		time.Sleep(time.Duration(rand.IntN(1500)) * time.Millisecond)
		if i%2 == 0 {
			if pid := keeper(m); pid != 0 {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
			continue
		}
		dead := time.Now()
		m.Kill()
		m.Start()
		down += time.Since(dead)
	}
	time.Sleep(300 * time.Millisecond)
	held := time.Since(began)
	p.End()
	past := ended(m, 1)["long"]
	// Each of four kills of the daemon may lose a second, and the time without a daemon is not counted.
	got := past.Held * 3600
	if least, most := (held-down).Seconds()-4, held.Seconds()+0.5; got < least || got > most {
		t.Errorf("%.2f GiB-seconds, want %.2f to %.2f", got, least, most)
	}
	if past.End == nil || *past.End != rows.Exited || past.Peak != gib {
		t.Errorf("%+v", past)
	}
	if all, _ := asked[report.EndedJob](m, "history"); len(all) != 1 {
		t.Errorf("one job, and the history has %d: %+v", len(all), all)
	}
}

// TestGoneMeanwhile: a job ends while no daemon runs. Its sum reaches up to the kill of the daemon, and its end is unknown, or the restarted
// daemon sees it.
func TestGoneMeanwhile(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{NoMount: true})
	kept(m)
	p := m.Interact(run(m, "--name", "gone", "--device", "0"))
	before := time.Now()
	p.Want("alloc a 1G", "ok")
	time.Sleep(2500 * time.Millisecond)
	held := time.Since(before)
	m.Kill()
	_ = unix.Kill(p.Process(), unix.SIGKILL)
	p.Wait()
	rig.Eventually(t, "the program ends too", func() bool { return m.SimNumber("total", "0") == 0 })
	m.Start()
	kept(m)
	if r := rig.Run(t, m.Gpuarb("why", "gone")); r.Code != 0 || !strings.Contains(r.Stdout, "(gone") {
		t.Errorf("why before its end is known, or just after: %+v", r)
	}
	past := ended(m, 1)["gone"]
	if got := past.Held * 3600; got < held.Seconds()-1 || got > held.Seconds()+0.1 {
		t.Errorf("%.2f GiB-seconds up to the kill, want %.2f less a second at most", got, held.Seconds())
	}
	if past.End == nil || (*past.End != rows.Unknown && *past.End != rows.Died && *past.End != rows.Closed) || past.User != "root" {
		t.Errorf("%+v", past)
	}
}

// TestFullDisk: with a full disk the daemon goes on, and the log and gpuarb doctor say so. When there is room again, what was held meanwhile is
// written.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{NoMount: true, Stopped: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}})
	disk := filepath.Join(m.Dir, "state")
	if err := os.MkdirAll(disk, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(m.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=2m,mode=0755"); err != nil {
		t.Fatalf("a small disk: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(disk, unix.MNT_DETACH) })
	m.Start()
	kept(m)
	filler := filepath.Join(disk, "filler")
	fill := exec.Command("sh", "-c", "cat /dev/zero >"+filler)
	_ = fill.Run() // ends when the disk is full
	p := m.Interact(run(m, "--name", "full", "--device", "0"))
	before := time.Now()
	p.Want("alloc a 1G", "ok")
	rig.Eventually(t, "the log says that the history cannot be written", func() bool {
		return strings.Contains(m.Log(), "the history cannot be written")
	})
	if r := rig.Run(t, m.Gpuarb("doctor")); !strings.Contains(r.Stdout+r.Stderr, "the history") {
		t.Errorf("doctor says nothing: %+v", r)
	}
	p.Want("alloc b 1M", "ok") // decisions go on
	held := time.Since(before)
	p.End()
	time.Sleep(2 * time.Second) // the job's last row is tried twice meanwhile
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	past := ended(m, 1)["full"]
	within(t, "held while the disk was full", past.Held, gib, span{held - 100*time.Millisecond, held + 500*time.Millisecond})
	if n := strings.Count(m.Log(), "the history cannot be written"); n != 1 {
		t.Errorf("%d lines in the log", n)
	}
}

// TestOldAndDamagedFile: a file of the first version is brought to the present one, with its rows. A damaged file and one of a newer version are
// set aside. The daemon starts each time.
func TestOldAndDamagedFile(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{NoMount: true})
	kept(m)
	finish(m, []string{"--name", "first"}, "alloc a 1G; sleep 50")
	ended(m, 1)
	m.Stop()
	path := filepath.Join(folder(m), rows.FileName)
	change := func(statements string) {
		db, err := sql.Open("sqlite", "file:"+path)
		if err == nil {
			_, err = db.Exec(statements)
		}
		if err != nil {
			t.Fatal(err)
		}
		_ = db.Close()
	}
	change("DROP INDEX jobs_seen; PRAGMA user_version = 1")
	m.Start()
	if all := ended(m, 1); all["first"].Peak != gib {
		t.Errorf("a file of version 1 has %+v", all)
	}
	m.Stop()
	for _, broken := range []struct{ name, statement string }{{"newer", "PRAGMA user_version = 1000"}, {"damaged", ""}} {
		if broken.statement != "" {
			change(broken.statement)
		} else if err := os.WriteFile(path, []byte(strings.Repeat("no database ", 1000)), 0o600); err != nil {
			t.Fatal(err)
		}
		m.Start()
		kept(m)
		if all, _ := asked[report.EndedJob](m, "history"); len(all) != 0 {
			t.Errorf("%s: the new history has %d jobs", broken.name, len(all))
		}
		if !strings.Contains(m.Log(), broken.name) || !strings.Contains(m.Log(), path+".aside") {
			t.Errorf("the log does not say what was done with a %s file", broken.name)
		}
		finish(m, []string{"--name", "next"}, "alloc a 1G")
		ended(m, 1)
		m.Stop()
	}
}

// TestTwoDaemons: a second daemon with the same folder starts, says that it keeps no history, and does not damage that of the first.
func TestTwoDaemons(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{NoMount: true})
	kept(m)
	other := rig.New(t, rig.Options{NoMount: true, Stopped: true, Environ: []string{"STATE_DIRECTORY=" + filepath.Join(m.Dir, "state")}})
	if err := os.Chmod(other.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	other.Start()
	rig.Eventually(t, "the second one says so", func() bool {
		return strings.Contains(other.Log(), "another gpuarb daemon keeps its history there")
	})
	if strings.Contains(other.Log(), "the history is kept") {
		t.Errorf("the second one says that it keeps the history: %s", other.Log())
	}
	rig.Eventually(t, "doctor says why, also after its process has ended", func() bool {
		d := rig.Run(t, other.Gpuarb("doctor"))
		return strings.Contains(other.Log(), "its process ended") && strings.Contains(d.Stdout+d.Stderr, "another gpuarb daemon keeps its history there")
	})
	finish(m, []string{"--name", "mine"}, "alloc a 1G")
	ended(m, 1)
	rig.Eventually(t, "its process has ended three times", func() bool { return strings.Count(other.Log(), "gpuarbd: the history: ") >= 3 })
	if n := strings.Count(other.Log(), "the history cannot be written"); n != 1 {
		t.Errorf("%d lines in the log that the history cannot be written", n)
	}
	r := rig.Run(t, other.Gpuarb("report"))
	if r.Code != 69 || !strings.Contains(r.Stderr, "`gpuarb doctor`") {
		t.Errorf("the second one: %+v", r)
	}
	text, err := json.Marshal(reported(m, "name", 1))
	if err != nil || !strings.Contains(string(text), "mine") {
		t.Errorf("%s, %v", text, err)
	}
}
