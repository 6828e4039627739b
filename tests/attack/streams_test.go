package attack

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold that a program makes and destroys streams without a message to the daemon, and that nevertheless the
// cap holds and the counts are right, also over restarts. The oracle is the driver's count.
// tests/conformance/streams_test.go has the cap without restarts.

// streamsMachine returns a machine with a streams.max.
func streamsMachine(t *testing.T, most int) *rig.Machine {
	return machine(t, rig.Options{Devices: "1G", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"},
		Config: fmt.Sprintf("schema_version = 1\n[defaults]\nstreams.max = %d\n", most)})
}

// streamsAre compares a program's streams with the daemon's count and the driver's.
func streamsAre(t *testing.T, m *rig.Machine, p *rig.Program, want int) {
	t.Helper()
	if l, h := m.Lease(p.PID(), 0), m.HeldBy(p.PID(), 0); l.Streams != want || h.Streams != want {
		t.Errorf("the daemon says %d streams, the driver %d, want %d", l.Streams, h.Streams, want)
	}
}

// TestStreamsWithoutAMessage makes and destroys streams while the daemon is stopped. A program that
// sent the daemon a message would wait for ever.
func TestStreamsWithoutAMessage(t *testing.T) {
	t.Parallel()
	m := streamsMachine(t, 4)
	p := cudaprog(m)
	say(t, p, "stream first", "ok")
	m.Halt(m.DaemonPID())
	for range 50 {
		say(t, p, "stream a", "ok")
		say(t, p, "stream b -1", "ok")
		say(t, p, "streamdestroy b", "ok")
		say(t, p, "streamdestroy a", "ok")
	}
	say(t, p, "stream a", "ok")
	check(t, syscall.Kill(m.DaemonPID(), syscall.SIGCONT))
	streamsAre(t, m, p, 2)
	say(t, p, "streamdestroy a", "ok")
	settle(t, m, []*rig.Program{p})
}

// TestStreamsOfManyThreads: threads that make and destroy streams at once have together exactly as many as the cap allows.
func TestStreamsOfManyThreads(t *testing.T) {
	t.Parallel()
	for _, most := range []int{2, 7, 40} {
		m := streamsMachine(t, most)
		p, q := cudaprog(m), cudaprog(m)
		for range 3 {
			want := fmt.Sprint("ok ", min(most, 8*4))
			say(t, p, "streamthreads 8 300 4", want)
			say(t, q, "streamthreads 8 300 4", want)
			streamsAre(t, m, p, min(most, 8*4))
			streamsAre(t, m, q, min(most, 8*4))
		}
		settle(t, m, []*rig.Program{p, q})
	}
}

// TestStreamsOverRestarts kills daemons while many threads make streams. Afterwards each count equals the driver's. The
// count of a lease is lent to its program, and returns to the daemon at each refusal; near the cap it therefore changes
// its holder often. While no daemon runs, no stream is refused.
func TestStreamsOverRestarts(t *testing.T) {
	t.Parallel()
	for _, most := range []int{256, 20} {
		m := streamsMachine(t, most)
		var crowd []*rig.Program
		for range 4 {
			crowd = append(crowd, cudaprog(m))
		}
		for round := range 6 * *scale {
			var busy sync.WaitGroup
			for _, p := range crowd {
				busy.Go(func() {
					got := p.Ask("streamthreads 4 5000 8")
					if taken := number(got); taken < min(most, 32) || taken > 32 {
						t.Errorf("round %d: of at most %d: %s", round, most, got)
					}
				})
			}
			m.Kill()
			m.Start()
			busy.Wait()
			settle(t, m, crowd)
		}
	}
}

// number parses the number in a program's answer; -1: the answer is an error.
func number(answer string) int {
	var n int
	if _, err := fmt.Sscanf(answer, "ok %d", &n); err != nil {
		return -1
	}
	return n
}

// TestStreamsLimitedLive lowers streams.max of a program below its number of streams, and raises it again.
func TestStreamsLimitedLive(t *testing.T) {
	t.Parallel()
	m := streamsMachine(t, 8)
	p := cudaprog(m)
	say(t, p, "streamthreads 1 0 5", "ok 5")
	set(t, m, p.PID(), "streams.max=3")
	say(t, p, "stream x", "err 2")
	streamsAre(t, m, p, 5)
	say(t, p, "streamthreads 1 100 5", "ok 3")
	set(t, m, p.PID(), "streams.max=4")
	say(t, p, "stream x", "ok")
	say(t, p, "stream y", "err 2")
	streamsAre(t, m, p, 4)
	settle(t, m, []*rig.Program{p})
}

// TestStreamsLimitedWithoutADaemon lowers streams.max in the configuration while no daemon runs, and then makes each stream charged.
func TestStreamsLimitedWithoutADaemon(t *testing.T) {
	t.Parallel()
	const config = "schema_version = 1\n[defaults]\nstreams.max = "
	m := streamsMachine(t, 8)
	p := cudaprog(m)
	say(t, p, "streamthreads 1 0 2", "ok 2")
	restart := func(config string) {
		t.Helper()
		m.Kill()
		check(t, os.WriteFile(filepath.Join(m.Dir, "gpuarb.toml"), []byte(config), 0o600))
		m.Start()
	}
	restart(config + "3\n")
	say(t, p, "stream a", "ok")
	say(t, p, "stream b", "err 2")
	streamsAre(t, m, p, 3)
	restart(config + "6\nstream_reserve = \"400M\"\n")
	say(t, p, "stream c", "err 2")
	streamsAre(t, m, p, 3)
}

// TestStreamsOfALiar: whatever a process writes into its stream count, the counts of other processes stay right, and its own slot is freed at its end.
func TestStreamsOfALiar(t *testing.T) {
	t.Parallel()
	m := streamsMachine(t, 4)
	honest := cudaprog(m)
	say(t, honest, "streamthreads 2 100 1", "ok 2")
	liar := partyOf(t, m, 0)
	for _, word := range []uint64{1<<63 | 1<<30 - 1, 1<<64 - 1, 1 << 63, 1<<30 - 1, 0} {
		liar.s.Page.Streams(liar.slot).Store(word)
		for _, d := range m.Snapshot().Leases {
			if d.Streams < 0 || d.Streams >= 1<<30 {
				t.Errorf("a row says %d streams", d.Streams)
			}
		}
		streamsAre(t, m, honest, 2)
		say(t, honest, "streamthreads 2 100 2", "ok 4")
		say(t, honest, "streamthreads 2 100 1", "ok 2")
	}
	settle(t, m, []*rig.Program{honest})
}
