package daemon

import (
	"bytes"
	"io"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/metrics"
)

// writeMetrics writes the metrics of a snapshot. It takes no lock of the daemon's.
func (d *Daemon) writeMetrics(w io.Writer, s accounting.Snapshot) error {
	return d.exporter.Write(w, s, metrics.Options{})
}

// metrics answers with the metrics of this moment.
func (cl *client) metrics(m ipc.Message) error {
	return cl.sendText(m, func(*audience) text {
		return cl.d.texts.metrics.Get(func() text {
			var b bytes.Buffer
			err := cl.d.writeMetrics(&b, cl.d.snapshot())
			return text{b.Bytes(), err}
		})
	})
}
