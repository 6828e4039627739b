package metrics

import (
	"errors"
	"io"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"

	"github.com/gpuarb/gpuarb/figures"
)

// Options says what is exported beyond the usual.
type Options struct {
	Jobs bool // the series of each job: as many as there are jobs
}

// Exporter writes metrics. Its methods are safe for concurrent use.
type Exporter struct {
	Requests *Requests           // whoever answers them counts them
	process  prometheus.Gatherer // what does not come from the snapshot
}

// New returns an exporter for the process that it is called in.
func New() *Exporter {
	process, requests := prometheus.NewRegistry(), newRequests()
	process.MustRegister(requests.seconds, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return &Exporter{requests, process}
}

// Write writes the metrics of a snapshot, and those of the process at this moment. Where some cannot be had it writes the
// others, and returns an error.
func (e *Exporter) Write(w io.Writer, s figures.Snapshot, o Options) error {
	ledger := prometheus.NewRegistry()
	failed := ledger.Register(collector{newView(s), o.families()})
	families, err := prometheus.Gatherers{ledger, e.process}.Gather()
	failed = errors.Join(failed, err)
	encoder := expfmt.NewEncoder(w, expfmt.NewFormat(expfmt.TypeTextPlain))
	for _, f := range families {
		if err := encoder.Encode(f); err != nil {
			return err // the writer's
		}
	}
	return failed
}
