package daemon

import (
	"bytes"
	"context"
	"io"
	"sync/atomic"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/config"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/metrics"
	"github.com/gpuarb/gpuarb/metrics/jobfiles"
)

// export writes the metrics for Prometheus and holds the configuration of both exports, this one and dcgm-exporter's files. It takes no lock
// of the daemon's.
type export struct {
	exporter *metrics.Exporter
	wanted   atomic.Pointer[config.Config]
	changed  chan struct{} // another configuration is in force
}

func newExport(c *config.Config) *export {
	e := &export{exporter: metrics.New(), changed: make(chan struct{}, 1)}
	e.set(c)
	return e
}

// set puts a configuration in force.
func (e *export) set(c *config.Config) {
	e.wanted.Store(c)
	select {
	case e.changed <- struct{}{}:
	default:
	}
}

// write writes the metrics of a snapshot.
func (e *export) write(w io.Writer, s accounting.Snapshot) error {
	return e.exporter.Write(w, s, metrics.Options{Jobs: e.wanted.Load().Metrics.Jobs})
}

// metrics answers with the metrics of this moment.
func (cl *client) metrics(m ipc.Message) error {
	return cl.sendText(m, func(*audience) text {
		return cl.d.texts.metrics.Get(func() text {
			var b bytes.Buffer
			err := cl.d.export.write(&b, cl.d.snapshot())
			return text{b.Bytes(), err}
		})
	})
}

// mapEvery is how often the files for dcgm-exporter are brought up to date. By default dcgm-exporter reads them twice a minute.
const mapEvery = time.Second

// mapJobs keeps the files for dcgm-exporter up to date while the configuration names a folder, until ctx ends; then it empties them.
func (d *Daemon) mapJobs(ctx context.Context) {
	m := mapper{d: d}
	for ctx.Err() == nil {
		m.turnTo(d.export.wanted.Load().DCGM.JobMappingDir)
		var next <-chan time.Time
		if m.folder != nil {
			m.tell(m.folder.Write(d.Snapshot()))
			next = d.after(mapEvery)
		}
		select {
		case <-ctx.Done():
		case <-d.export.changed:
		case <-next:
		}
	}
	m.turnTo("")
}

// mapper keeps one folder of dcgm-exporter's files, or none.
type mapper struct {
	d      *Daemon
	folder *jobfiles.Folder
	said   string // the last error that was logged
}

// turnTo changes to another folder, or none, and empties the files of the old one.
func (m *mapper) turnTo(path string) {
	if m.folder != nil && m.folder.Path() != path {
		m.tell(m.folder.Clear())
		m.folder = nil
	}
	if m.folder == nil && path != "" {
		m.folder = jobfiles.New(path)
	}
}

// tell logs an error, once as long as it stays the same.
func (m *mapper) tell(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != m.said {
		m.d.log.Warn("dcgm-exporter is not told which jobs a GPU has", "folder", m.folder.Path(), "err", err)
	}
	m.said = text
}
