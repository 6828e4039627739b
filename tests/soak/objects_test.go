package soak

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file shows that streams, contexts and slots of many threads are counted once when the daemon dies
// between its decision and its answer. The expected numbers come from the commands that the test sent.
// faultpoints_test.go has bytes.

// makers is the number of threads of one program that make objects at once.
const makers = 12

// together runs the commands in the given threads of a team at once, and waits for all. Each must
// succeed.
func together(t *testing.T, p *rig.Program, threads []int, commands ...string) {
	t.Helper()
	var want, got []string
	for _, thread := range threads {
		for _, command := range commands {
			command = strings.ReplaceAll(command, "#", fmt.Sprint(thread))
			p.Tell(fmt.Sprintf("%d %s", thread, command))
			want = append(want, fmt.Sprintf("%d %s ok", thread, strings.Fields(command)[0]))
		}
	}
	for range want {
		got = append(got, p.Line())
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(want, got) {
		t.Fatalf("%q, want %q\n%s", got, want, p.Stderr())
	}
}

// objectsAgree compares the daemon's counts for a team with the driver's counts, and with the number of
// threads that have an object by the commands so far.
func objectsAgree(t *testing.T, m *rig.Machine, p *rig.Program, pid, streams, contexts, slots int) {
	t.Helper()
	said := ""
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(said)
		}
	})
	rig.Eventually(t, "the counts agree", func() bool {
		together(t, p, []int{0}, "info x") // resumes the session
		driver, daemon := m.HeldBy(pid, 0), m.Lease(pid, 0)
		taken := 0
		for _, h := range m.Snapshot().Devices[0].Holders {
			taken += h.Slots
		}
		said = fmt.Sprintf("driver %+v, daemon %d streams and %d contexts, %d slots; told to have %d, %d, %d",
			driver, daemon.Streams, daemon.Contexts, taken, streams, contexts, slots)
		return driver.Streams == streams && daemon.Streams == streams &&
			driver.Contexts == contexts && daemon.Contexts == contexts && taken == slots
	})
}

// TestObjectsOutliveTheDaemon kills the daemon while many threads make and end streams and contexts and take slots: when it
// changes a count, between its decision and its answer, and while a client resumes its session. Afterwards no object counts
// twice, and every living object is counted, for its process and for its thread.
func TestObjectsOutliveTheDaemon(t *testing.T) {
	t.Parallel()
	for _, scope := range []string{"thread", "process"} {
		t.Run(scope, func(t *testing.T) {
			t.Parallel()
			m := rig.New(t, rig.Options{Devices: "1G", NoMount: true, Life: bounded.Lifetime + 5*time.Minute, Binary: rig.Build(t, "faults/gpuarbd"),
				Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}, Config: "schema_version = 1\n[defaults]\non_loss = \"closed\"\non_full = \"wait\"\n" +
					"wait_timeout = \"max\"\ncontext_reserve = \"0\"\nslots.max = " + fmt.Sprint(makers) + "\nslots.scope = \"" + scope + "\"\n"})
			k := keep(t, m)
			p := m.Interact(m.Command(m.PreloadEnv(), rig.Build(t, "programs/team")))
			p.Tell("0 pid")
			pid := 0
			if _, err := fmt.Sscanf(p.Line(), "0 pid ok %d", &pid); err != nil {
				t.Fatal(err)
			}
			slotsOf := func(threads int) int {
				if scope == "process" {
					return min(threads, 1)
				}
				return threads
			}
			var all []int
			for thread := range makers {
				all = append(all, thread)
			}
			// Thread 0 always has an object, so that it can send requests.
			together(t, p, all[:1], "retain c# 0", "stream s#")
			rest := all[1:]
			before := k.died()
			for _, point := range []string{"objects.counted", "objects.decided", "objects.drained", "resume.objects", "resume.found"} {
				alive := k.died()
				for _, nth := range []int{1, 2, 9} {
					arm := func() {
						k.again(fmt.Sprintf("GPUARB_FAULT=%s:%d", point, nth))
						k.ready()
					}
					arm()
					together(t, p, rest, "retain c# 0", "stream s#", "context x#")
					objectsAgree(t, m, p, pid, makers, makers, slotsOf(makers))
					arm()
					together(t, p, rest[:5], "streamdestroy s#", "destroy x#", "release 0")
					objectsAgree(t, m, p, pid, makers-5, makers-5, slotsOf(makers-5))
					arm()
					together(t, p, rest[5:], "destroy x#", "streamdestroy s#", "release 0")
					objectsAgree(t, m, p, pid, 1, 1, slotsOf(1))
				}
				// One message may speak for several threads, so the number of passes at a fault point varies.
				if died := k.died() - alive; died < 3 {
					t.Errorf("only %d daemons died at %s", died, point)
				}
			}
			t.Logf("%d daemons died", k.died()-before)
			k.again()
			k.stop()
			together(t, p, all[:1], "streamdestroy s#", "release 0")
			gone(t, m, p)
		})
	}
}
