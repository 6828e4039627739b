package arbitration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold which memory pays for a context. A job's reservation has room for the context of its first process;
// the context of each further process needs free memory, and waits for it or is refused. wait_test.go has reservations
// without contexts.

// narrow returns a machine of 4 GiB on which each context costs 256 MiB, and whose configuration says so.
func narrow(t *testing.T) *rig.Machine {
	return rig.New(t, rig.Options{Devices: "4G", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=256M"},
		Config: "schema_version = 1\n[defaults]\ncontext_reserve = \"256MiB\"\ndeadlock_grace = \"200ms\"\n"})
}

// couple starts a job of two programs. The first holds its memory until the second has ended, and the second
// begins when stdin gets a line.
func couple(m *rig.Machine, first, second string, flags ...string) *rig.Program {
	m.T.Helper()
	const script = `"$0" "alloc a $1; sleep 100000000" </dev/null & read line; "$0" "alloc b $2"; kill $!; wait`
	args := append([]string{"run"}, flags...)
	job := m.Begin(m.Gpuarb(append(args, "--", "/bin/sh", "-c", script, rig.Build(m.T, "programs/cudaprog-dlsym"), first, second)...))
	job.Expect("ready")
	job.Expect("alloc a ok")
	return job
}

// fill starts a program that holds all free device memory except `but` bytes, beside its own context.
// No memory of ended programs may still be in use at that moment, because it would become free later.
func fill(m *rig.Machine, but uint64) *rig.Program {
	m.T.Helper()
	d := m.Snapshot().Devices[0]
	other := bare(m)
	other.Want(fmt.Sprintf("alloc x %d", uint64(d.Capacity-d.Committed)-256*mib-but), "ok")
	return other
}

// TestFurtherContext: a job's reservation includes one context. The context of its second process takes
// free memory, or waits with a message that gives the reason. The reservation stays whole meanwhile.
func TestFurtherContext(t *testing.T) {
	t.Parallel()
	m := narrow(t)
	job := couple(m, "1G", "1G", "--memory", "2G", "--min", "2G", "--wait")
	other := fill(m, 200*mib)
	job.Tell("second")
	waiting(m, 1)
	rig.Eventually(t, "the job says what it waits for", func() bool {
		return strings.Contains(job.Stderr(), "waits for a further context on GPU 0") &&
			strings.Contains(job.Stderr(), "memory.min has room for one context")
	})
	other.Want("free x", "ok")
	job.Expect("ready")
	job.Expect("alloc b ok")
	job.Wait()
	other.End()
	idle(m)
	// A job with --no-wait is refused, and the refusal gives the reason.
	job = couple(m, "1G", "1G", "--memory", "2G", "--min", "2G")
	other = fill(m, 200*mib)
	job.Tell("second")
	job.Expect("init err 2")
	job.Wait()
	if !strings.Contains(job.Stderr(), "its job's memory.min has room for one context, and this is a further one") {
		t.Errorf("it says %q", job.Stderr())
	}
	other.End()
	idle(m)
	// If the device has room for the context, the job starts without a message.
	job = couple(m, "1G", "1G", "--memory", "2G", "--min", "2G")
	other = fill(m, 256*mib)
	job.Tell("second")
	job.Expect("ready")
	job.Expect("alloc b ok")
	job.Wait()
	other.End()
	idle(m)
}

// TestFurtherContextOfItsOwn: with --per-process each process has its own reservation, which includes
// its context. The second process waits for its reservation before it begins.
func TestFurtherContextOfItsOwn(t *testing.T) {
	t.Parallel()
	m := narrow(t)
	job := couple(m, "1G", "1G", "--min", "1G", "--per-process", "--wait")
	other := fill(m, 1200*mib)
	job.Tell("second")
	waiting(m, 1)
	rig.Eventually(t, "the job says what it waits for", func() bool { return strings.Contains(job.Stderr(), "waits for its memory.min of 1 GiB") })
	other.Want("free x", "ok")
	job.Expect("ready")
	other.Want("alloc x 1G", "ok")
	job.Expect("alloc b ok")
	job.Wait()
	other.End()
	idle(m)
}

// TestFurtherContextsInADeadlock: two jobs each wait for a second context, while the first process of each job
// waits for the second process. This is a deadlock: one job is refused, and the other goes on.
func TestFurtherContextsInADeadlock(t *testing.T) {
	t.Parallel()
	m := narrow(t)
	one := couple(m, "1700M", "0", "--min", "1700M", "--wait")
	two := couple(m, "1700M", "0", "--min", "1700M", "--wait")
	one.Tell("second")
	waiting(m, 1)
	two.Tell("second")
	two.Expect("init err 2")
	two.Wait()
	if !strings.Contains(two.Stderr(), "deadlock: ") || !strings.Contains(two.Stderr(), "wants a further context on GPU 0") {
		t.Errorf("it says %q", two.Stderr())
	}
	one.Expect("ready")
	one.Line() // the answer to "alloc b 0"
	one.Wait()
	idle(m)
}
