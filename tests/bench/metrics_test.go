package bench

import (
	"testing"

	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// BenchmarkScrape is what it costs to read the metrics of a thousand leases over the socket, and of how much memory the daemon has come to hold
// after all of these readings; the snapshot beside it is the other whole state that can be read.
func BenchmarkScrape(b *testing.B) {
	m := rig.New(b, rig.Options{Devices: devices, NoMount: true})
	crowd(b, m, 1000, 1)
	c, err := ipc.Dial(b.Context(), m.Socket)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	for _, what := range []struct {
		name string
		read func() ([]byte, error)
	}{
		{"snapshot", func() ([]byte, error) { return c.Snapshot(b.Context()) }},
		{"metrics", func() ([]byte, error) { return c.Metrics(b.Context()) }},
	} {
		b.Run(what.name, func(b *testing.B) {
			for range 5 { // until the heap is as large as it gets
				if _, err := what.read(); err != nil {
					b.Fatal(err)
				}
			}
			private, _ := resident(b, m)
			before, bytes := cpu(b, m), 0
			for b.Loop() {
				text, err := what.read()
				if err != nil {
					b.Fatal(err)
				}
				bytes = len(text)
			}
			after, _ := resident(b, m)
			b.ReportMetric(float64((cpu(b, m)-before).Microseconds())/float64(b.N), "daemon-µs")
			b.ReportMetric(float64(bytes), "B")
			b.ReportMetric((after-private)/(1<<20), "MiB-grown")
		})
	}
}
