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

// BenchmarkIdle is what the daemon costs when nobody asks it anything, one second
// an operation: its processor time for fifty leases, at one look at the devices a second.
func BenchmarkIdle(b *testing.B) {
	m := rig.New(b, rig.Options{Devices: "8G,8G", NoMount: true})
	crowd(b, m, 50, 1)
	before := cpu(b, m)
	for b.Loop() {
		time.Sleep(time.Second)
	}
	b.ReportMetric(float64((cpu(b, m)-before).Microseconds())/b.Elapsed().Seconds(), "cpu-µs/s")
}

// BenchmarkMemory is what a lease adds to the daemon's resident memory: a thousand
// clients of one lease each come and stay, a second thousand after the first.
func BenchmarkMemory(b *testing.B) {
	m := rig.New(b, rig.Options{Devices: devices, NoMount: true})
	for b.Loop() {
		before := resident(b, m)
		crowd(b, m, 1000, 1)
		b.ReportMetric(float64(resident(b, m)-before)/1000, "B/lease")
	}
}

// resident is the daemon's resident memory, without pages that it shares with others.
func resident(b *testing.B, m *rig.Machine) uint64 {
	b.Helper()
	var bytes uint64
	for line := range strings.Lines(proc(b, m, "status")) {
		var kib uint64
		if n, _ := fmt.Sscanf(line, "RssAnon: %d kB", &kib); n == 1 {
			bytes += kib << 10
		}
		if n, _ := fmt.Sscanf(line, "RssShmem: %d kB", &kib); n == 1 {
			bytes += kib << 10
		}
	}
	return bytes
}

// cpu is the processor time that the daemon has used, by the scheduler's own count.
func cpu(b *testing.B, m *rig.Machine) (used time.Duration) {
	b.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", m.DaemonPID()))
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

func proc(b *testing.B, m *rig.Machine, name string) string {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", m.DaemonPID(), name))
	if err != nil {
		b.Fatal(err)
	}
	return string(text)
}
