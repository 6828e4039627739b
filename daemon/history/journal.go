package history

// This file sends events to systemd's journal. It reads the history like any other reader; daemon/loops.go starts it.

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"strings"

	"github.com/coreos/go-systemd/v22/journal"

	"github.com/gpuarb/gpuarb/daemon/fair"
	"github.com/gpuarb/gpuarb/internal/events"
)

// priorities maps the levels of the log to those of the journal.
var priorities = map[slog.Level]journal.Priority{slog.LevelWarn: journal.PriWarning, slog.LevelInfo: journal.PriInfo, slog.LevelDebug: journal.PriDebug}

// Journal sends events to the journal until ctx ends, if events go there. Because it reads the history like any other
// reader, a slow journal delays no other reader.
func (h *History) Journal(ctx context.Context) {
	if !h.journaled {
		return
	}
	logged := fair.Logged()
	_, _ = h.Read(ctx, 0, true, events.MaxLine, func(lines []byte, _ int64) error {
		for line := range strings.Lines(string(lines)) {
			h.sendLine(line, &logged)
		}
		return nil
	})
}

// sendLine sends one event, unless its user has had too many.
func (h *History) sendLine(line string, logged *fair.Quota) {
	e, err := events.Parse([]byte(line))
	if err != nil {
		return
	}
	if uid := cmp.Or(e.ByUID, e.UID); uid != nil {
		ok, dropped := logged.Admit(h.now(), *uid)
		if dropped > 0 {
			_ = journal.Print(journal.PriInfo, "%d events about requests of user %d were not sent to the journal in the last minute: they were too many", dropped, *uid)
		}
		if !ok {
			return
		}
	}
	_ = journal.Send(e.Text, priorities[levels[e.Kind]], journalFields(line))
}

// journalFields returns the fields of a line in the journal's spelling: GPUARB_JOB for job. Values other than strings
// are spelled as in JSON.
func journalFields(line string) map[string]string {
	var raw map[string]json.RawMessage
	_ = json.Unmarshal([]byte(line), &raw)
	vars := map[string]string{"SYSLOG_IDENTIFIER": "gpuarbd"}
	for name, value := range raw {
		var text string
		if json.Unmarshal(value, &text) != nil {
			text = string(value)
		}
		if name != "text" {
			vars["GPUARB_"+strings.ToUpper(name)] = text
		}
	}
	return vars
}
