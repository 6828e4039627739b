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

// export is what other programs' metrics are made of. It has no lock of the daemon's.
type export struct {
	exporter *metrics.Exporter
	wanted   atomic.Pointer[config.Config]
	changed  chan struct{} // something else is wanted
}

func newExport(c *config.Config) *export {
	e := &export{exporter: metrics.New(), changed: make(chan struct{}, 1)}
	e.set(c)
	return e
}

// set has a configuration be in force from here on.
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

// mapEvery is how often dcgm-exporter's files are looked after. It reads them twice a minute, unless told otherwise.
const mapEvery = time.Second

// mapJobs has dcgm-exporter's files say which jobs a GPU has, as long as the configuration wants them. In the end it empties them.
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
	said   string // of the last trouble
}

// turnTo leaves the folder for another one, or none.
func (m *mapper) turnTo(path string) {
	if m.folder != nil && m.folder.Path() != path {
		m.tell(m.folder.Clear())
		m.folder = nil
	}
	if m.folder == nil && path != "" {
		m.folder = jobfiles.New(path)
	}
}

// tell logs a trouble once.
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
