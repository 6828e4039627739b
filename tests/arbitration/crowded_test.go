package arbitration

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold that a request waits even if the queue has no place for it, because its process or its user has the
// greatest allowed number of waiting requests. Time limits and signals end such a wait like any other.
// tests/attack/crowded_test.go has the same bound over the protocol.

// waitingThreads is the number of threads of one process that can wait in the queue, each on its own connection
// (GA_CONNECTIONS_TO_WAIT).
const waitingThreads = 60

// crowdOf is the number of threads of a program, more than can wait in the queue. Each thread allocates 1 MiB and frees it.
const crowdOf = 80

// crowded starts a program of crowdOf threads while a holder has the device. It returns both programs when the queue has as many threads as can wait.
func crowded(t *testing.T, m *rig.Machine, flags ...string) (holder, crowd *rig.Program) {
	holder = bare(m)
	holder.Want("alloc all 100M", "ok")
	args := append([]string{"run"}, flags...)
	crowd = m.Interact(m.Gpuarb(append(args, "--", "sh", "-c", "trap '' INT; exec \"$0\"", rig.Build(t, "programs/cudaprog-dlsym"))...))
	crowd.Tell(fmt.Sprintf("threads %d 1 1M 1", crowdOf))
	waiting(m, waitingThreads)
	return holder, crowd
}

// processorTime returns the processor time of a process, in clock ticks of 10 ms.
func processorTime(t *testing.T, pid int) (ticks int) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	for _, field := range fields[11:13] {
		var n int
		if _, err := fmt.Sscan(field, &n); err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return ticks
}

// TestThreadsWithoutAPlace: threads of a program that find no place in the queue wait outside it, and go on when there is a place.
func TestThreadsWithoutAPlace(t *testing.T) {
	t.Parallel()
	m := machine(t, "100M", "")
	holder, crowd := crowded(t, m, "--wait")
	rig.Eventually(t, "the user is told", func() bool { return strings.Contains(crowd.Stderr(), "no connection to the daemon left") })
	holder.Want("free all", "ok")
	crowd.Expect(fmt.Sprintf("threads ok %d 0", crowdOf))
	crowd.End()
	holder.End()
	idle(m)
}

// TestThreadsWithoutAPlaceWaitTheirTime: threads outside the queue obey their own time limit, and use almost no processor time.
func TestThreadsWithoutAPlaceWaitTheirTime(t *testing.T) {
	t.Parallel()
	m := machine(t, "100M", "")
	holder, crowd := crowded(t, m, "--wait=5s")
	pid := m.Snapshot().Queue[0].PID
	before := processorTime(t, pid)
	crowd.Expect(fmt.Sprintf("threads ok 0 %d", crowdOf))
	if took := processorTime(t, pid) - before; took > 150 {
		t.Errorf("%d threads took %d0 ms of the processor in 5 s", crowdOf, took)
	}
	if said := crowd.Stderr(); !strings.Contains(said, "as long as it may: the queue was full when it came") {
		t.Errorf("the user is not told: %q", said)
	}
	crowd.End()
	holder.End()
	idle(m)
}

// TestThreadsWithoutAPlaceAreInterrupted: a signal to gpuarb run ends the waits of all threads, inside and outside the queue.
func TestThreadsWithoutAPlaceAreInterrupted(t *testing.T) {
	t.Parallel()
	m := machine(t, "100M", "")
	holder, crowd := crowded(t, m, "--wait=max")
	crowd.Signal(syscall.SIGINT)
	crowd.Expect(fmt.Sprintf("threads ok 0 %d", crowdOf))
	crowd.End()
	holder.End()
	idle(m)
}

// TestJobsWithoutAPlace: a user has the greatest allowed number of waiting requests. A further job of that user still waits, and begins when one
// of the requests is served. The job's own time limit holds, and a signal ends its wait.
func TestJobsWithoutAPlace(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Fatal("only root can run programs of another user")
	}
	m := machine(t, "100M", "[defaults]\non_full = \"wait\"\n")
	ann := m.OtherUser(1000)
	holder := bare(m)
	holder.Want("alloc all 100M", "ok")
	var crowds []*rig.Program
	for n := 0; n < 512; n += waitingThreads {
		p := ann.Bare()
		p.Tell(fmt.Sprintf("threads %d 1 1M 1", waitingThreads))
		crowds = append(crowds, p)
	}
	waiting(m, 512)
	job := func(flags ...string) *rig.Program {
		args := append([]string{"run", "--min", "50M"}, flags...)
		return m.Begin(ann.Gpuarb(append(args, "--", "echo", "ran")...))
	}
	told := func(p *rig.Program) {
		rig.Eventually(t, "the job says why it does not start yet", func() bool { return strings.Contains(p.Stderr(), "user 1000 has 512 requests waiting already") })
	}
	late, given, patient := job("--wait=1s"), job("--wait=max"), job("--wait=max")
	told(late)
	told(given)
	told(patient)
	if code := late.Wait(); code != 124 || !strings.Contains(late.Stderr(), "as long as it may") {
		t.Errorf("exit code %d of the job with a wait of one second: %q", code, late.Stderr())
	}
	given.Signal(syscall.SIGINT)
	if code := given.Wait(); code != 130 || !strings.Contains(given.Stderr(), "given up") {
		t.Errorf("exit code %d of the interrupted job: %q", code, given.Stderr())
	}
	if n := len(m.Snapshot().Queue); n != 512 {
		t.Errorf("%d requests wait", n)
	}
	holder.Want("free all", "ok")
	if line := patient.Line(); line != "ran" {
		t.Errorf("the program that waits says %q", line)
	}
	if code := patient.Wait(); code != 0 {
		t.Errorf("exit code %d: %q", code, patient.Stderr())
	}
	for _, p := range crowds {
		p.Expect(fmt.Sprintf("threads ok %d 0", waitingThreads))
		p.End()
	}
	holder.End()
	idle(m)
}
