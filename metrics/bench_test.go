package metrics

import (
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
)

// BenchmarkWrite is the text of a machine with eight devices, 1,000 leases and 64 users, made from a snapshot that is there: no lock is held
// meanwhile. What counts are the time, and how little the leases are of it.
func BenchmarkWrite(b *testing.B) {
	for _, n := range []int{0, 1000, 10000} {
		b.Run(fmt.Sprintf("leases=%d", n), func(b *testing.B) {
			s := sample()
			s.Devices, s.Users = nil, nil
			for i := range 8 {
				s.Devices = append(s.Devices, accounting.DeviceState{Index: i, UUID: fmt.Sprint("GPU-", i), Total: 80 * gib})
			}
			for i := range 64 {
				s.Users = append(s.Users, accounting.UserState{UID: uint32(i), Name: fmt.Sprint("user", i), Max: accounting.Max, Counts: counts(1)})
			}
			for i := range n {
				s.Leases = append(s.Leases, accounting.LeaseState{PID: i, Device: i % 8, Job: uint64(i), State: accounting.StateRunning})
				s.Jobs = append(s.Jobs, accounting.JobState{ID: uint64(i), State: accounting.StateRunning})
			}
			e := New()
			b.ReportAllocs()
			for b.Loop() {
				if err := e.Write(io.Discard, s, Options{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkTook is what counting a request adds to it, and reading the clock twice.
func BenchmarkTook(b *testing.B) {
	r, zero := newRequests(), time.Now()
	for b.Loop() {
		began := time.Since(zero)
		r.Took(Memory, time.Since(zero)-began)
	}
}
