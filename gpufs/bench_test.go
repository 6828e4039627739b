package gpufs

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/gpuarb/gpuarb/accounting"
)

// thousand is a state with a thousand processes of one lease each.
func thousand() accounting.Snapshot {
	s := sample()
	lease, process, job := s.Leases[0], s.Processes[0], s.Jobs[0]
	s.Leases, s.Processes, s.Jobs = nil, nil, nil
	for i := range 1000 {
		lease.PID, process.PID, process.StartTicks = 1000+i, 1000+i, uint64(i)
		lease.Job, process.Job, job.ID = uint64(i), uint64(i), uint64(i)
		job.Processes = []int{lease.PID}
		s.Leases = append(s.Leases, lease)
		s.Processes = append(s.Processes, process)
		s.Jobs = append(s.Jobs, job)
	}
	return s
}

// BenchmarkThousandLeases reads files of a state with a thousand leases; the budget
// for the table is 10 ms.
func BenchmarkThousandLeases(b *testing.B) {
	v := &fakeView{s: thousand()}
	_, mnt := mountView(b, v)
	for _, name := range []string{"leases", "leases.json", "stats", "processes/1500/memory.current", "devices/0/memory.current"} {
		b.Run(filepath.Base(name), func(b *testing.B) {
			for b.Loop() {
				if _, err := os.ReadFile(filepath.Join(mnt, name)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("find", func(b *testing.B) {
		files := 0
		for b.Loop() {
			files = 0
			err := filepath.WalkDir(filepath.Join(mnt, "processes"), func(string, os.DirEntry, error) error {
				files++
				return nil
			})
			if err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(files), "µs/file")
	})
	b.Log(fmt.Sprint("snapshots taken: ", v.taken))
}
