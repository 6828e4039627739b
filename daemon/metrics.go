package daemon

// This file answers requests for metrics, and keeps the files for dcgm-exporter up to date. serve.go calls metrics,
// loops.go starts mapJobs; package daemon/metrics has the formats.

import (
	"bytes"
	"context"
	"io"
	"time"

	"github.com/gpuarb/gpuarb/daemon/metrics"
	"github.com/gpuarb/gpuarb/daemon/metrics/jobfiles"
	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/ipc"
)

// writeMetrics writes the metrics of a snapshot. It takes no lock of the daemon.
func (d *Daemon) writeMetrics(w io.Writer, s figures.Snapshot) error {
	return d.exporter.Write(w, s, metrics.Options{Jobs: d.config.Load().Metrics.Jobs})
}

// metrics answers with the current metrics.
func (cl *client) metrics(m ipc.Message) error {
	cl.noteAccess()
	if job := cl.within(); job != 0 {
		return cl.sendText(m, func(*audience) text {
			var b bytes.Buffer
			err := cl.d.writeMetrics(&b, cl.d.state().Within(job))
			return text{b.Bytes(), err}
		})
	}
	return cl.sendText(m, func(*audience) text {
		return cl.d.cache.metrics.Get(func() text {
			var b bytes.Buffer
			err := cl.d.writeMetrics(&b, cl.d.snapshot())
			return text{b.Bytes(), err}
		})
	})
}

// mapEvery is how often the files for dcgm-exporter are updated. By default dcgm-exporter reads them twice a minute.
const mapEvery = time.Second

// mapJobs updates the files for dcgm-exporter while the configuration names a folder, until ctx ends. Then it empties
// them.
func (d *Daemon) mapJobs(ctx context.Context) {
	m := mapper{d: d}
	for ctx.Err() == nil {
		m.switchTo(d.config.Load().DCGM.JobMappingDir)
		var next <-chan time.Time
		if m.folder != nil {
			m.logOnce(m.folder.Write(d.state()))
			next = d.after(mapEvery)
		}
		select {
		case <-ctx.Done():
		case <-d.configChanged:
		case <-next:
		}
	}
	m.switchTo("")
}

// mapper maintains one folder of dcgm-exporter's files, or none.
type mapper struct {
	d         *Daemon
	folder    *jobfiles.Folder
	lastError string // text of the last logged error; "": none
}

// switchTo changes to another folder, or none, and empties the files of the old folder.
func (m *mapper) switchTo(path string) {
	if m.folder != nil && m.folder.Path() != path {
		m.logOnce(m.folder.Clear())
		m.folder = nil
	}
	if m.folder == nil && path != "" {
		m.folder = jobfiles.New(path)
	}
}

// logOnce logs an error unless it equals the last one.
func (m *mapper) logOnce(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != m.lastError {
		m.d.log.Warn("dcgm-exporter is not told which jobs a GPU has", "folder", m.folder.Path(), "err", err)
	}
	m.lastError = text
}
