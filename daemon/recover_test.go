package daemon

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/internal/statefile"
	"github.com/gpuarb/gpuarb/ipc"
)

// This file checks two facts about jobs that the next daemon cannot take from the state file alone: whether a job
// whose runner has ended is privileged, and which devices it may use if indices have changed or a device is gone.
// tests/attack/state_test.go damages the state file, daemon_test.go restarts daemons beside a client.

// TestStandingOfADeadRunner checks a job of root whose runner has ended. After a restart of the daemon it is
// privileged only if a live process of the job is, because the user number does not distinguish root from root in a
// container.
func TestStandingOfADeadRunner(t *testing.T) {
	member := func(privileged, ended bool) *recovered {
		proc := rules.Process{Privileged: privileged, Namespace: 7}
		return &recovered{session: &session{peer: ipc.Peer{UID: 0}}, proc: proc, ended: ended}
	}
	for _, c := range []struct {
		name    string
		members []*recovered
		want    bool
	}{
		{"no process lives", nil, false},
		{"the process has ended", []*recovered{member(true, true)}, false},
		{"the process is in a container", []*recovered{member(false, false)}, false},
		{"the process is privileged", []*recovered{member(true, false)}, true},
	} {
		proc := runnerFromMembers(&statefile.Job{UID: 0, RunnerPID: 12}, c.members)
		if proc.MayPass() != c.want || proc.Namespace == 0 {
			t.Errorf("%s: may pass the rules: %t, namespace %d", c.name, proc.MayPass(), proc.Namespace)
		}
	}
}

// TestDevicesOfAJobByUUID swaps the indices of two devices between two daemons. It checks that a job has the device that
// it was given, and its slot there, under the new index, and that a job whose device is gone may not use another one.
func TestDevicesOfAJobByUUID(t *testing.T) {
	b := &bench{t: t, dir: shortDir(t), machine: newFakeMachine(t, 1<<30, 1<<30)}
	b.write(filepath.Join(b.dir, "gpuarb.toml"), "schema_version = 1\n[defaults]\nslots.max = 2\n")
	b.start()
	dial := func() *ipc.Client {
		t.Helper()
		c, err := ipc.Dial(t.Context(), b.socket())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	job, err := dial().OpenJob(t.Context(), ipc.JobOpenRequest{Memory: ipc.NoLimit, Min: ipc.NoLimit, Devices: 1}) // on GPU 0
	if err != nil {
		t.Fatal(err)
	}
	is := func(when string, given []uint32, slots ...int) {
		t.Helper()
		b.lock()
		reply := b.openReplyLocked(b.jobs[job.Job])
		b.unlock()
		var got []uint32
		for _, on := range reply.Device[:reply.Devices] {
			got = append(got, on.Index)
		}
		if !slices.Equal(got, given) {
			t.Errorf("%s the job has the devices %v, want %v", when, got, given)
		}
		for i, d := range b.Snapshot().Devices {
			if d.SlotsCurrent != slots[i] {
				t.Errorf("%s %d jobs have a slot of GPU %d, want %d", when, d.SlotsCurrent, i, slots[i])
			}
		}
	}
	is("at first", []uint32{0}, 1, 0)
	first, second := &b.machine.list[0], &b.machine.list[1]
	first.UUIDBytes, second.UUIDBytes = second.UUIDBytes, first.UUIDBytes
	b.restart()
	is("with the indices swapped", []uint32{1}, 0, 1)
	b.machine.list = b.machine.list[:1]
	b.restart()
	is("with its device gone", nil, 0)
	s, err := dial().HelloShim(t.Context(), ipc.HelloRequest{Memory: ipc.NoLimit, StreamReserve: ipc.NoLimit, Job: job.Job})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Main.Attach(t.Context(), first.UUIDBytes); err == nil {
		t.Error("a program of the job uses another device in place of the one that is gone")
	}
}
