//go:build full

package slurm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/bounded"
)

// This file submits jobs, arrays and steps as users, and ends them in several ways. machine_test.go makes the machine.

// shards returns how many bytes a program can allocate in shards of 1 GiB, beside its context. A context takes 64 MiB of the
// simulated driver, and counts in the budget.
func shards(n int) int { return n<<30 - 64<<20 }

// TestFullJobs runs four jobs of two users at a time. Each is held to its shards to the byte, and the Epilog prints the
// most that it held.
func TestFullJobs(t *testing.T) {
	h := boot(t)
	var jobs []*job
	for i := range 4 {
		user := []string{"ann", "ben"}[i%2]
		jobs = append(jobs, h.submit(user, fmt.Sprintf("--gres=shard:%d", i/2+1)))
	}
	for i, j := range jobs {
		j.Expect("ready")
		j.Want(fmt.Sprint("alloc all ", shards(i/2+1)), "ok")
		j.Want("alloc more 1", "err 2")
	}
	if held, want := h.held(), fmt.Sprint(2*shards(1)+2*shards(2)); held != want {
		t.Errorf("the driver holds %s bytes, want %s", held, want)
	}
	list := h.shell("root", "gpuarb job list")
	for _, j := range jobs {
		if !strings.Contains(list, " slurm-"+j.id+" ") {
			t.Errorf("job %s is not listed:\n%s", j.id, list)
		}
	}
	for i, j := range jobs {
		j.End()
		h.until("the Epilog has closed the job", "grep -w slurm-"+j.id+" /var/log/slurm/epilog.log")
		line := h.shell("root", "grep -w slurm-"+j.id+" /var/log/slurm/epilog.log")
		if !strings.Contains(line, fmt.Sprintf("of %d GiB on GPU 0 (and 64 MiB for contexts)", i/2+1)) {
			t.Errorf("the Epilog says %q, want its peak of %d GiB", line, i/2+1)
		}
	}
	if list := h.shell("root", "gpuarb job list | sed 1d"); list != "" {
		t.Errorf("jobs are left:\n%s", list)
	}
	if held := h.held(); held != "0" {
		t.Errorf("the driver holds %s bytes at the end", held)
	}
}

// TestFullSteps checks what --gpu-mem, steps, arrays and a changed environment do to the budget.
func TestFullSteps(t *testing.T) {
	h := boot(t)
	// answer runs commands of the test program, and returns the answers without the commands.
	answer := func(user, run string, commands ...string) string {
		t.Helper()
		h.jobs++
		script := fmt.Sprintf("printf '%s\\n' | %s", strings.Join(commands, "\\n"), run)
		var words []string
		out, _ := h.command(user, script).Output() // a program without a context ends with an error
		for line := range strings.Lines(string(out)) {
			if fields := strings.Fields(line); fields[0] == "alloc" {
				words = append(words, strings.Join(fields[2:], " "))
			} else if fields[0] == "init" {
				words = append(words, strings.TrimSpace(line))
			}
		}
		return strings.Join(words, ",")
	}
	for _, c := range []struct{ what, run, want string }{
		{"two shards", "srun --gres=shard:2 cudaprog-dlsym", "ok,err 2"},
		{"--gpu-mem narrows", "srun --gres=shard:4 --gpu-mem=2G cudaprog-dlsym", "ok,err 2"},
		{"--gpu-mem does not widen", "srun --gres=shard:2 --gpu-mem=8G cudaprog-dlsym", "ok,err 2"},
		{"without shards", "srun --gpu-mem=4G cudaprog-dlsym", "init err 2"},
		{"a forged count of shards", "env SLURM_SHARDS_ON_NODE=8 srun cudaprog-dlsym", "init err 2"},
		{"another environment", "srun --gres=shard:2 env -i SIMCUDA_DIR=/run/sim SIMCUDA_DEVICES=8G,8G /usr/local/bin/cudaprog-dlsym", "ok,err 2"},
		{"a whole GPU", "srun --gres=gpu:1 cudaprog-dlsym", "ok,ok"},
		{"a step of an allocation", "salloc -Q --gres=shard:2 srun cudaprog-dlsym", "ok,err 2"},
		{"a step without shards of its own", "salloc -Q --gres=shard:2 srun --gres=none cudaprog-dlsym", "ok,err 2"},
		{"salloc --gpu-mem", "salloc -Q --gres=shard:4 --gpu-mem=2G srun cudaprog-dlsym", "ok,err 2"},
	} {
		if got := answer("ann", c.run, fmt.Sprint("alloc a ", shards(2)), "alloc b 1"); got != c.want {
			t.Errorf("%s: %s: %s, want %s", c.what, c.run, got, c.want)
		}
	}
	out, err := h.command("ann", "srun --gres=shard:1 --gpu-mem=2X true").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "--gpu-mem=2X is not a size. Write 512M or 4G") {
		t.Errorf("srun --gpu-mem=2X: %v\n%s", err, out)
	}
	// The batch script and its steps share one budget.
	j := h.submit("ben", "--gres=shard:3 --gpu-mem=1G")
	j.Expect("ready")
	j.Want(fmt.Sprint("alloc a ", shards(1)), "ok")
	if got := answer("ben", "srun --jobid="+j.id+" --overlap cudaprog-dlsym", "alloc b 1"); got != "init err 2" {
		t.Errorf("a step beside the full batch script: %s", got)
	}
	j.End()
	h.shell("ben", "sbatch -W --gres=shard:1 --array=1-2 -o /run/jobs/array-%a --wrap 'gpuarb job list'")
	for task := 1; task <= 2; task++ {
		if list := h.shell("ben", fmt.Sprintf("cat /run/jobs/array-%d", task)); !strings.Contains(list, fmt.Sprintf("_%d ", task)) {
			t.Errorf("task %d of the array is not listed by its name:\n%s", task, list)
		}
	}
}

// TestFullAway checks what jobs get without the daemon: the Prolog and the plug-in refuse them. A program that looks for
// the daemon elsewhere gets no memory.
func TestFullAway(t *testing.T) {
	h := boot(t)
	h.shell("root", "install -D -m 0644 /dev/null /usr/lib/gpuarb/bound/on-loss-closed")
	elsewhere := "printf 'alloc a 1\n' | srun --gres=shard:1 env GPUARB_SOCKET=/run/jobs/none cudaprog-dlsym"
	if out := h.shell("ann", elsewhere); !strings.Contains(out, "alloc a err 2") {
		t.Errorf("with another socket than the daemon's:\n%s", out)
	}
	h.shell("ann", "salloc --no-shell -Q --gres=shard:1")
	id := h.shell("ann", "squeue -h -o %i")
	h.shell("root", "kill $(cat /run/gpuarbd.pid)")
	h.until("the daemon has ended", "! gpuarb job list")
	out, _ := h.command("ann", "srun --jobid="+id+" touch /run/jobs/step").CombinedOutput() // srun exits with 0
	if !strings.Contains(string(out), "Plugin initialization failed") {
		t.Errorf("a step without the daemon: %s", out)
	}
	said := h.shell("root", "grep 'device memory of the step cannot be limited' /var/log/slurm/slurmd.log")
	if !strings.Contains(said, "/usr/local/bin/gpuarb") {
		t.Errorf("slurmd's log says %q", said)
	}
	h.shell("ann", "scancel "+id)
	h.shell("ann", "sbatch --gres=shard:1 -o /run/jobs/never --wrap true")
	h.until("the Prolog takes the node out of service", "sinfo -R | grep -i prolog")
	if _, err := h.command("root", "ls /run/jobs/never /run/jobs/step").Output(); err == nil {
		t.Error("a job or a step has started without the daemon")
	}
}

// TestFullEnds cancels and requeues jobs, and kills slurmd and the daemon under them.
func TestFullEnds(t *testing.T) {
	h := boot(t)
	h.shell("root", "touch /run/late") // the daemon sees the end of the cgroup before the Epilog runs
	cancelled := h.submit("ann", "--gres=shard:1")
	cancelled.Expect("ready")
	cancelled.Want(fmt.Sprint("alloc a ", shards(1)), "ok")
	h.shell("ann", "scancel "+cancelled.id)
	h.until("the cancelled job is closed", "grep -w slurm-"+cancelled.id+" /var/log/slurm/epilog.log")
	if line := h.shell("root", "rm /run/late; cat /var/log/slurm/epilog.log"); !strings.Contains(line, "of ann: it used at most 960 MiB of 1 GiB") {
		t.Errorf("the Epilog says %q", line)
	}
	bounded.Until(t, "its memory is back", func() bool { return h.held() == "0" })

	again := h.submit("ann", "--gres=shard:1 --requeue")
	again.Expect("ready")
	again.Want(fmt.Sprint("alloc a ", shards(1)), "ok")
	second := h.requeue(again)
	second.Want(fmt.Sprint("alloc a ", shards(1)), "ok")
	second.Want("alloc b 1", "err 2")

	h.shell("root", "kill -9 $(cat /run/slurmd.pid)")
	second.Want("free a", "ok")
	second.Want(fmt.Sprint("alloc a ", shards(1)), "ok")
	second.Want("alloc b 1", "err 2")
	h.startSlurmd()
	h.shell("root", "kill -9 $(cat /run/gpuarbd.pid)")
	h.startDaemon()
	second.Want("alloc b 1", "err 2") // from its first request on
	second.Want("free a", "ok")
	second.Want(fmt.Sprint("alloc a ", shards(1)), "ok")
	second.Want("alloc b 1", "err 2")
	beside := h.submit("ben", "--gres=shard:1")
	beside.Expect("ready")
	beside.Want(fmt.Sprint("alloc a ", shards(1)), "ok")
	beside.Want("alloc b 1", "err 2")
	second.End()
	beside.End()
	h.until("all jobs are closed", "test -z \"$(gpuarb job list | sed 1d)\"")
}

// TestFullShares starts as many jobs as the cards have shards, eight of 1 GiB on each card of 8 GiB. Each fills its shard,
// context included. One more job must wait.
func TestFullShares(t *testing.T) {
	h := boot(t)
	var jobs []*job
	for range 16 {
		jobs = append(jobs, h.submit("ann", "--gres=shard:1"))
	}
	for _, j := range jobs {
		j.Expect("ready")
		j.Want(fmt.Sprint("alloc a ", shards(1)), "ok")
	}
	if held, want := h.held(), fmt.Sprint(len(jobs)*shards(1)); held != want {
		t.Errorf("the driver holds %s bytes, want %s", held, want)
	}
	late := h.submit("ben", "--gres=shard:2")
	h.until("Slurm queues the job whose shares do not fit", "squeue -h -j "+late.id+" -o '%T %r' | grep 'PENDING Resources'")
	if !late.Silent() {
		t.Error("the job whose shares do not fit has started")
	}
	out, err := h.command("ben", "sbatch --gres=shard:17 --wrap true").CombinedOutput()
	if err == nil {
		t.Errorf("17 shards of 16: %s", out)
	}
	for _, j := range jobs {
		j.End()
	}
	late.Expect("ready")
	late.Want(fmt.Sprint("alloc a ", shards(2)), "ok")
	late.Want("alloc b 1", "err 2")
	late.End()
}
