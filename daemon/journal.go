package daemon

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/coreos/go-systemd/v22/journal"

	"github.com/gpuarb/gpuarb/daemon/fair"
	"github.com/gpuarb/gpuarb/events"
)

// journals tells whether standard error is systemd's journal: then events go there with their fields, and not as lines of the log.
func journals() bool {
	direct, err := journal.StderrIsJournalStream()
	return err == nil && direct && journal.Enabled()
}

// priorities are those of the kinds in the journal; others have info.
var priorities = map[events.Kind]journal.Priority{
	events.Clamped: journal.PriWarning, events.Kept: journal.PriWarning, events.DeviceLost: journal.PriWarning, events.DeviceHung: journal.PriWarning,
	events.Deadlock: journal.PriWarning, events.Lost: journal.PriWarning,
	events.Granted: journal.PriDebug, events.Recalled: journal.PriDebug, events.Died: journal.PriDebug,
	events.Reclaimed: journal.PriDebug, events.Verified: journal.PriDebug, events.Unmanaged: journal.PriDebug, events.Within: journal.PriDebug,
}

// sendJournal sends events to the journal until ctx ends. It is one more reader of the history, so a slow journal delays
// nobody else.
func (d *Daemon) sendJournal(ctx context.Context) {
	if !d.journaled {
		return
	}
	defer d.history.follow()()
	pace, at, lines := fair.Logged(), int64(0), make([]byte, 0, events.MaxLine)
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-d.history.log.Grown(at):
			lines, at = d.history.log.Lines(lines[:0], d.now(), at)
			for line := range strings.Lines(string(lines)) {
				d.sendLine(line, &pace)
			}
		}
	}
}

// sendLine sends one event, unless its user has had too many.
func (d *Daemon) sendLine(line string, pace *fair.Lines) {
	e, err := events.Parse([]byte(line))
	if err != nil {
		return
	}
	uid := e.ByUID
	if uid == nil {
		uid = e.UID
	}
	if uid != nil {
		ok, dropped := pace.Admit(d.now(), *uid)
		if dropped > 0 {
			_ = journal.Print(journal.PriInfo, "%d events about requests of user %d were not sent to the journal in the last minute: they were too many", dropped, *uid)
		}
		if !ok {
			return
		}
	}
	priority, known := priorities[e.Kind]
	if !known {
		priority = journal.PriInfo
	}
	_ = journal.Send(e.Text, priority, journalFields(line))
}

// journalFields are the fields of a line as the journal has them: GPUARB_JOB for job. Values that are not strings are spelled as in JSON.
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
