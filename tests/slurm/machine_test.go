//go:build full

package slurm

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file makes the machine on which the tests of this package submit jobs, and starts its daemons.

// host is a machine with Slurm, two simulated GPUs of 8 GiB with eight shards each, and the users ann and ben.
type host struct {
	*rig.Machine
	t     *testing.T
	dir   string
	node  string
	first int // PID of the machine's first process in this namespace
	jobs  int // number of jobs submitted by submit
}

// environment is given to all processes on the machine, also to the users' shells.
var environment = append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/", "LC_ALL=C",
	"SIMCUDA_DIR=/run/sim", "SIMCUDA_DEVICES=8G,8G"}, rig.NoProcessor...)

// lateEpilog keeps what the Epilog prints, which Slurm drops. If /run/late exists, it first waits until the daemon has closed the job.
const lateEpilog = `#!/bin/sh
exec >>/var/log/slurm/epilog.log 2>&1
while [ -e /run/late ] && /usr/local/bin/gpuarb job list | grep -q "/job_$SLURM_JOB_ID$"; do :; done
exec /etc/slurm/epilog
`

// boot makes the machine, with the daemon and Slurm. All of it ends with the test, also if the test is killed.
func boot(t *testing.T) *host {
	t.Helper()
	dir, err := os.MkdirTemp("", "gpuarb-slurm-")
	if err != nil {
		t.Fatal(err)
	}
	h := &host{t: t, dir: dir, node: filepath.Base(dir)}
	h.fill()
	h.begin()
	t.Setenv("TMPDIR", dir)
	h.Machine = rig.New(t, rig.Options{Stopped: true, NoMount: true})
	t.Cleanup(func() {
		if t.Failed() {
			text, _ := h.command("root", "tail -n 100 /var/log/gpuarbd.log; tail -n 40 /var/log/slurm/*; sinfo -R; squeue").CombinedOutput()
			t.Logf("the logs of the machine:\n%s", text)
		}
	})
	h.shell("root", "mkdir -m 1777 /run/sim /run/jobs && simcuda init && gpuarb enable --all >/dev/null")
	h.startDaemon()
	h.shell("root", "setpriv --reuid=munge --regid=munge --clear-groups munged && slurmctld -i")
	h.startSlurmd()
	return h
}

// fill writes the folders of the machine: gpuarb, the driver and the test program for /usr/local, and the files of /etc.
func (h *host) fill() {
	h.t.Helper()
	local, etc := filepath.Join(h.dir, "local"), filepath.Join(h.dir, "etc")
	if err := os.Chmod(h.dir, 0o755); err != nil {
		h.t.Fatal(err)
	}
	install := func(mode, folder string, files ...string) {
		args := []string{"-D", "-m", mode, "-t", folder}
		for _, file := range files {
			args = append(args, rig.Build(h.t, file))
		}
		h.here("install", args...)
	}
	install("755", filepath.Join(local, "bin"), "gpuarb", "gpuarbd", "programs/cudaprog-dlsym", "sim/simcuda")
	install("755", filepath.Join(local, "lib"), "sim/libcuda.so.1", "sim/libnvidia-ml.so.1")
	install("755", filepath.Join(local, "lib/gpuarb"), "libgpuarb.so", "gpuarb-probe", "slurm/gpuarb.so")
	write := func(mode os.FileMode, name, text string) {
		path := filepath.Join(etc, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			h.t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			h.t.Fatal(err)
		}
	}
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			h.t.Fatal(err)
		}
		return strings.ReplaceAll(strings.ReplaceAll(string(text), "NODE", h.node), "/usr/bin/gpuarb", "/usr/local/bin/gpuarb")
	}
	for _, name := range []string{"slurm.conf", "gres.conf", "cgroup.conf"} {
		write(0o644, "slurm/"+name, read("testdata/"+name))
	}
	write(0o644, "slurm/plugstack.conf", "required /usr/local/lib/gpuarb/gpuarb.so gpuarb=/usr/local/bin/gpuarb share=1G\n")
	write(0o755, "slurm/gpuarb-prolog", read("../../slurm/prolog"))
	write(0o755, "slurm/gpuarb-epilog", lateEpilog)
	write(0o755, "slurm/epilog", read("../../slurm/epilog"))
	write(0o644, "gpuarb/gpuarb.toml", "schema_version = 1\n")
	key := make([]byte, 1024)
	random, err := os.Open("/dev/urandom")
	if err != nil {
		h.t.Fatal(err)
	}
	defer random.Close()
	if _, err := io.ReadFull(random, key); err != nil {
		h.t.Fatal(err)
	}
	write(0o600, "munge/munge.key", string(key))
}

// here runs a command outside the namespaces of the test's machine.
func (h *host) here(name string, args ...string) {
	h.t.Helper()
	if out, err := bounded.Command(h.t, bounded.Patience, name, args...).CombinedOutput(); err != nil {
		h.t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}

// begin starts the script that keeps the namespaces. The script ends when its standard input ends. It has no time limit as
// other commands have, because it must outlive a test that is killed, and clean up.
func (h *host) begin() {
	h.t.Helper()
	cmd := exec.Command("./machine.sh", h.dir, h.node)
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		h.t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		h.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	ended := make(chan struct{})
	said := make(chan string, 1)
	go func() {
		word := make([]byte, 6)
		_, _ = io.ReadFull(stdout, word)
		said <- string(word)
		_, _ = io.Copy(io.Discard, stdout)
		_ = cmd.Wait()
		close(ended)
	}()
	h.t.Cleanup(func() {
		_ = stdin.Close()
		select {
		case <-ended:
		case <-time.After(bounded.Patience):
			h.t.Error("the machine does not end")
		}
		if _, err := os.Stat(h.dir); err == nil {
			h.t.Errorf("%s is left", h.dir)
		}
		if left, _ := filepath.Glob("/sys/fs/cgroup/*/slurm_" + h.node); len(left) > 0 {
			h.t.Errorf("cgroups are left: %v", left)
		}
	})
	if word := bounded.Receive(h.t, "the machine is ready", said); word != "ready\n" {
		<-ended
		h.t.Fatalf("the machine does not start: %s", &stderr)
	}
	h.first = child(h.t, child(h.t, cmd.Process.Pid)) // the script's child is unshare
}

// child returns the only child of a process.
func child(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", pid))
	var found int
	if _, bad := fmt.Sscan(string(text), &found); err != nil || bad != nil {
		t.Fatalf("process %d has no child: %v %v", pid, err, bad)
	}
	return found
}

// command returns a shell command of a user of the machine, in a folder that all may read.
func (h *host) command(user, script string) *exec.Cmd {
	args := []string{fmt.Sprintf("--target=%d", h.first), "--mount", "--uts", "--ipc", "--net", "--pid", "--wd=/"}
	if user != "root" {
		args = append(args, "setpriv", "--reuid="+user, "--regid="+user, "--clear-groups")
		script = "cd /run/jobs && " + script
	}
	cmd := bounded.Command(h.t, bounded.Lifetime, "nsenter", append(args, "sh", "-c", script)...)
	cmd.Env = environment
	return cmd
}

// shell runs a user's command, which must succeed, and returns what it prints.
func (h *host) shell(user, script string) string {
	h.t.Helper()
	r := rig.Run(h.t, h.command(user, script))
	if r.Code != 0 {
		h.t.Fatalf("%s: %s: status %d\n%s%s", user, script, r.Code, r.Stdout, r.Stderr)
	}
	return strings.TrimSpace(r.Stdout)
}

// startDaemon starts gpuarbd, and returns when it answers.
func (h *host) startDaemon() {
	h.t.Helper()
	h.shell("root", "gpuarbd --mount none </dev/null >>/var/log/gpuarbd.log 2>&1 & echo $! >/run/gpuarbd.pid")
	h.until("gpuarbd answers", "gpuarb job list")
}

// startSlurmd starts slurmd, and returns when the controller gives jobs to the node.
func (h *host) startSlurmd() {
	h.t.Helper()
	h.shell("root", "slurmd </dev/null >/dev/null 2>&1")
	h.until("the node takes jobs", "sinfo -h -o %t | grep -E 'idle|mix|alloc'")
}

// until waits until root's command succeeds.
func (h *host) until(what, script string) {
	h.t.Helper()
	bounded.Until(h.t, what, func() bool { return h.command("root", script).Run() == nil })
}

// held returns what the programs of the machine hold, by the driver's own count.
func (h *host) held() string { h.t.Helper(); return h.shell("root", "simcuda total") }

// job is a batch job whose program takes commands from the test.
type job struct {
	*rig.Program
	id    string
	pipes string // path of the two pipes to its program, without the suffixes .in and .out
}

// submit submits a batch job with options of sbatch. Its program answers when the job has started.
func (h *host) submit(user, options string) *job {
	h.t.Helper()
	h.jobs++
	pipes := fmt.Sprintf("/run/jobs/%d", h.jobs)
	h.shell(user, fmt.Sprintf("mkfifo %s.in %[1]s.out", pipes))
	j := &job{pipes: pipes}
	j.id, _, _ = strings.Cut(h.shell(user, fmt.Sprintf("sbatch --parsable -o %s.txt %s --wrap 'exec cudaprog-dlsym <%[1]s.in >%[1]s.out'", pipes, options)), ";")
	j.Program = h.talk(pipes)
	return j
}

// talk opens the pipes to a job's program.
func (h *host) talk(pipes string) *rig.Program {
	return h.Begin(h.command("root", fmt.Sprintf("cat %s.out & exec cat >%[1]s.in", pipes)))
}

// requeue requeues a job of ann, and waits until Slurm has started it again. Returns the program of the second start, which is ready. The
// Epilog of the first start has run by then.
func (h *host) requeue(j *job) *rig.Program {
	h.t.Helper()
	h.shell("ann", "scontrol requeue "+j.id)
	h.until("the requeued job is closed", "grep -w slurm-"+j.id+" /var/log/slurm/epilog.log")
	j.CloseStdin() // the pipes are for the second program now
	j.Wait()
	second := h.talk(j.pipes)
	h.until("Slurm has requeued the job", "squeue -h -j "+j.id+" -o %r | grep BeginTime")
	// Slurm would wait for two minutes. It refuses a start in the second in which the job was revoked.
	h.until("Slurm lets it start again", "scontrol update jobid="+j.id+" StartTime=now+2seconds")
	second.Expect("ready")
	return second
}
