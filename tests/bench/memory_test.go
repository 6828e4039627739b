package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file measures how much memory of the daemon a lease costs. It also reads the daemon's processor time for other
// files.

// BenchmarkMemory measures how much resident memory a lease adds to the daemon, if each
// lease has a session of its own. It reports private memory, and memory shared
// with clients, which is the lease page. The leases are not read meanwhile, because a read
// allocates memory for its reply.
func BenchmarkMemory(b *testing.B) {
	m := rig.New(b, rig.Options{Devices: devices, NoMount: true})
	private, shared := resident(b, m)
	openCrowd(b, m, 2000, m.Snapshot().Devices[:1])
	for b.Loop() {
		p, s := resident(b, m)
		b.ReportMetric((p-private)/2000, "B/lease")
		b.ReportMetric((s-shared)/2000, "shared-B/lease")
	}
	b.ReportMetric(0, "ns/op")
}

// resident returns the daemon's resident memory in bytes.
func resident(b *testing.B, m *rig.Machine) (private, shared float64) {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", m.DaemonPID()))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		for name, to := range map[string]*float64{"RssAnon": &private, "RssShmem": &shared} {
			if rest, ok := strings.CutPrefix(line, name+":"); ok {
				if _, err := fmt.Sscanf(rest, "%f kB", to); err != nil {
					b.Fatal(line, err)
				}
				*to *= 1024
			}
		}
	}
	return private, shared
}

// cpu returns the processor time that the daemon has used, by the scheduler's own count.
func cpu(b *testing.B, m *rig.Machine) time.Duration { b.Helper(); return cpuOf(b, m.DaemonPID()) }

// cpuOf returns the processor time that a process has used.
func cpuOf(b *testing.B, pid int) (used time.Duration) {
	b.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		b.Fatal(err)
	}
	for _, name := range tasks {
		text, err := os.ReadFile(name)
		var ns int64
		if _, scan := fmt.Sscan(string(text), &ns); err != nil || scan != nil {
			b.Fatal(name, err, scan)
		}
		used += time.Duration(ns)
	}
	return used
}
