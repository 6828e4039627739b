package metrics

// This file writes the metrics. devices.go, users.go and machine.go have the metrics of the
// snapshot, and requests.go those of the process.

import (
	"errors"
	"io"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"

	"github.com/gpuarb/gpuarb/internal/figures"
)

// Exporter writes metrics. Its methods are safe for concurrent use.
type Exporter struct {
	Requests *Requests           // counts requests; the code that answers requests calls it
	process  prometheus.Gatherer // metrics that do not come from the snapshot
}

// New returns an exporter for this process.
func New() *Exporter {
	process, requests := prometheus.NewRegistry(), newRequests()
	process.MustRegister(requests.seconds, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return &Exporter{requests, process}
}

// Write writes the metrics of a snapshot, and those of the process at this time. If some metrics
// fail, it writes the others and returns an error.
func (e *Exporter) Write(w io.Writer, s figures.Snapshot, o Options) error {
	ledger := prometheus.NewRegistry()
	failed := ledger.Register(collector{newView(s), o.families()})
	families, err := prometheus.Gatherers{ledger, e.process}.Gather()
	failed = errors.Join(failed, err)
	encoder := expfmt.NewEncoder(w, expfmt.NewFormat(expfmt.TypeTextPlain))
	for _, f := range families {
		if err := encoder.Encode(f); err != nil {
			return err // error of the writer
		}
	}
	return failed
}
