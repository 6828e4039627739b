package report

// This file writes what the history knows: the sums of a report, and jobs that have ended. `gpuarb report` and `gpuarb history` print it.

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/archive/rows"
)

// hourMs is an hour in milliseconds.
const hourMs = 3600 * 1000

// sumColumns are the columns of a report. keyName is the name of the last column.
func sumColumns(keyName string) []column[rows.Sum] {
	return []column[rows.Sum]{
		memoryTime("HELD", func(r rows.Sum) float64 { return r.Held }, 0),
		memoryTime("RESERVED", func(r rows.Sum) float64 { return r.Reserved }, 0),
		memoryTime("AT-PEAK", func(r rows.Sum) float64 { return r.AtPeak }, 2),
		amount("PEAK", func(r rows.Sum) accounting.Bytes { return accounting.Bytes(r.Peak) }, 0),
		span("WAITED", func(r rows.Sum) int64 { return int64(r.Waited * hourMs) }, 0),
		number("REFUSED", func(r rows.Sum) int { return int(r.Refused) }, 0),
		span("IDLE", func(r rows.Sum) int64 { return int64(r.Idle * hourMs) }, 1),
		number("JOBS", func(r rows.Sum) int { return int(r.Jobs) }, 3),
		plain(keyName, last, func(r rows.Sum) string { return Escape(keyOrDash(r.Key)) }, 0),
	}
}

// keyOrDash returns a key, or "-" if it is empty, as for jobs without a name.
func keyOrDash(key string) string {
	if key == "" {
		return "-"
	}
	return key
}

// memoryTime makes a column of memory times time, from GiB-hours: "9.68GiB-s", "2.5GiB-min", "12.5GiB-h"; without units, GiB-hours.
func memoryTime[T any](name string, of func(T) float64, dropRank int) column[T] {
	return column[T]{name, right, func(s Style, t T) string {
		if !s.Human {
			return threeDigits(of(t))
		}
		n, unit := readable(of(t))
		return threeDigits(n) + "GiB-" + unit
	}, dropRank}
}

// readable converts GiB-hours to the largest of the units s, min and h (GiB-seconds, GiB-minutes and GiB-hours) in which the number is at
// least 1. Smaller numbers are in GiB-seconds.
func readable(gibHours float64) (n float64, unit string) {
	switch {
	case gibHours >= 1:
		return gibHours, "h"
	case gibHours >= 1.0/60:
		return gibHours * 60, "min"
	}
	return gibHours * 3600, "s"
}

// threeDigits formats a number with three digits, or as many as it has before the point: "0.00556", "12.5", "1234".
func threeDigits(n float64) string {
	text := strconv.FormatFloat(n, 'g', 3, 64)
	if n >= 1000 || strings.Contains(text, "e") {
		text = strconv.FormatFloat(n, 'f', max(0, 6-len(strconv.Itoa(int(n)))), 64)
		if strings.Contains(text, ".") {
			text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
		}
	}
	return text
}

// Sums writes a report as a table. by names what each row is about, and is the heading of the last column.
func (style Style) Sums(w io.Writer, by string, sums []rows.Sum) error {
	return table(w, style, sumColumns(strings.ToUpper(by)), sums)
}

// Total is a row of `gpuarb report --json`.
type Total struct {
	Key       *string          `json:"key"`
	Jobs      int64            `json:"jobs"`
	Held      float64          `json:"held_gib_hours"`
	Reserved  float64          `json:"reserved_gib_hours"`
	AtPeak    float64          `json:"peak_gib_hours"`
	Peak      accounting.Bytes `json:"peak_bytes"`
	Hours     float64          `json:"hours"`
	Waited    float64          `json:"waited_hours"`
	Idle      float64          `json:"idle_hours"`
	Waits     int64            `json:"waits"`
	Refused   int64            `json:"refused"`
	Committed float64          `json:"committed_gib_hours"`
	Granted   float64          `json:"granted_gib_hours"`
}

// Totals returns a report as JSON shows it.
func Totals(sums []rows.Sum) []Total {
	totals := make([]Total, len(sums))
	for i, r := range sums {
		totals[i] = Total{Unless(r.Key, ""), r.Jobs, r.Held, r.Reserved, r.AtPeak, accounting.Bytes(r.Peak), r.Hours, r.Waited, r.Idle, r.Waits, r.Refused, r.Committed, r.Granted}
	}
	return totals
}

// EndedJob is a row of `gpuarb history --json`.
type EndedJob struct {
	Job       uint64            `json:"job"`
	UID       uint32            `json:"uid"`
	User      string            `json:"user"`
	Group     *string           `json:"group"`
	Name      *string           `json:"name"`
	Command   string            `json:"command"`
	Unit      *string           `json:"unit"`
	Began     string            `json:"began"`
	Ended     *string           `json:"ended"`
	RunMs     int64             `json:"run_ms"`
	End       *string           `json:"end"`
	Code      *int              `json:"code"`
	Peak      accounting.Bytes  `json:"peak_bytes"`
	Held      float64           `json:"held_gib_hours"`
	Reserved  float64           `json:"reserved_gib_hours"`
	Waits     int64             `json:"waits"`
	WaitedMs  int64             `json:"waited_ms"`
	IdleMs    int64             `json:"idle_ms"`
	Refused   int64             `json:"refused"`
	Reasons   map[string]uint64 `json:"reasons"`
	Refusal   *string           `json:"refusal"`
	Requested *uint64           `json:"refused_bytes"`
}

// EndedJobs returns jobs of the history as JSON shows them.
func EndedJobs(pasts []rows.Past) []EndedJob {
	all := make([]EndedJob, len(pasts))
	for i, p := range pasts {
		j := EndedJob{Job: p.ID, UID: p.UID, User: p.User, Group: Unless(p.Group, ""), Name: Unless(p.Name, ""), Command: p.Command, Unit: Unless(p.Unit, ""),
			Began: stamp(p.BeganMs), RunMs: p.SeenMs - p.BeganMs, Peak: accounting.Bytes(p.Peak), Held: p.Held, Reserved: p.Reserved,
			Waits: p.Waits, WaitedMs: p.WaitedMs, IdleMs: p.IdleMs, Refused: p.Refused, Reasons: p.Reasons, Refusal: Unless(p.Refusal, ""), Requested: Unless(p.LackedBy, 0)}
		if j.Reasons == nil {
			j.Reasons = map[string]uint64{}
		}
		if p.EndedMs != 0 {
			j.Ended, j.End = Unless(stamp(p.EndedMs), ""), &p.How
		}
		if p.How == rows.Exited || p.How == rows.Killed {
			j.Code = &p.Code
		}
		all[i] = j
	}
	return all
}

// stamp formats a Unix time in milliseconds for JSON, in the format of the events: "2026-11-25T14:30:00.000Z".
func stamp(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z07:00") }

// sumFields are the columns of a report as CSV. Programs rely on their names and order; new ones come last.
var sumFields = []struct {
	name string
	text func(rows.Sum) string
}{
	{"key", func(r rows.Sum) string { return csvCell(r.Key) }},
	{"jobs", func(r rows.Sum) string { return strconv.FormatInt(r.Jobs, 10) }},
	{"held_gib_hours", func(r rows.Sum) string { return decimal(r.Held) }},
	{"reserved_gib_hours", func(r rows.Sum) string { return decimal(r.Reserved) }},
	{"peak_gib_hours", func(r rows.Sum) string { return decimal(r.AtPeak) }},
	{"peak_bytes", func(r rows.Sum) string { return strconv.FormatUint(r.Peak, 10) }},
	{"hours", func(r rows.Sum) string { return decimal(r.Hours) }},
	{"waited_hours", func(r rows.Sum) string { return decimal(r.Waited) }},
	{"idle_hours", func(r rows.Sum) string { return decimal(r.Idle) }},
	{"waits", func(r rows.Sum) string { return strconv.FormatInt(r.Waits, 10) }},
	{"refused", func(r rows.Sum) string { return strconv.FormatInt(r.Refused, 10) }},
	{"committed_gib_hours", func(r rows.Sum) string { return decimal(r.Committed) }},
	{"granted_gib_hours", func(r rows.Sum) string { return decimal(r.Granted) }},
}

func decimal(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }

// csvCell returns a text that users have chosen, safe for a terminal and for a spreadsheet: with an apostrophe before a formula, it is a text.
func csvCell(text string) string {
	if text = Escape(text); strings.IndexAny(strings.TrimLeft(text, " "), "=+-@") == 0 {
		return "'" + text
	}
	return text
}

// SumsCSV writes a report as CSV with a header.
func SumsCSV(w io.Writer, sums []rows.Sum) error {
	out := csv.NewWriter(w)
	line := make([]string, len(sumFields))
	for i, f := range sumFields {
		line[i] = f.name
	}
	_ = out.Write(line) // Error reports it below
	for _, r := range sums {
		for i, f := range sumFields {
			line[i] = f.text(r)
		}
		_ = out.Write(line)
	}
	out.Flush()
	return out.Error()
}

// pastColumns are the columns of the table of jobs of the history.
var pastColumns = []column[rows.Past]{
	plain("JOB", right, func(p rows.Past) string { return strconv.FormatUint(p.ID, 10) }, 0),
	plain("USER", left, func(p rows.Past) string { return cell(p.User) }, 0),
	plain("BEGAN", left, func(p rows.Past) string { return time.UnixMilli(p.BeganMs).Format("01-02T15:04:05") }, 0),
	span("TIME", func(p rows.Past) int64 { return p.SeenMs - p.BeganMs }, 0),
	plain("END", left, EndOf, 0),
	amount("PEAK", func(p rows.Past) accounting.Bytes { return accounting.Bytes(p.Peak) }, 0),
	memoryTime("HELD", func(p rows.Past) float64 { return p.Held }, 1),
	span("WAITED", func(p rows.Past) int64 { return p.WaitedMs }, 0),
	number("REFUSED", func(p rows.Past) int { return int(p.Refused) }, 0),
	plain("COMMAND", last, func(p rows.Past) string { return Named(p.Name, p.Command) }, 0),
}

// EndOf returns how a job ended in one word: "exit:1", "signal:9", "died"; "runs": it has not ended.
func EndOf(p rows.Past) string {
	switch {
	case p.EndedMs == 0:
		return "runs"
	case p.How == rows.Exited || p.How == rows.Killed:
		return fmt.Sprintf("%s:%d", p.How, p.Code)
	}
	return p.How
}

// Pasts writes jobs of the history as a table.
func (style Style) Pasts(w io.Writer, pasts []rows.Past) error {
	return table(w, style, pastColumns, pasts)
}

// endTexts are the predicates of a sentence about the end of a job. %d stands for the exit code or the signal.
var endTexts = map[string]string{
	rows.Exited: "ended with exit code %d", rows.Killed: "was ended by signal %d", rows.Died: "ended while its last process held memory, contexts or streams",
	rows.Closed: "ended", rows.Refused: "was refused before it began", rows.Unknown: "was gone when the daemon was started again",
}

// WritePast tells in sentences how a job ended, and what it waited for and was refused.
func WritePast(w io.Writer, p rows.Past, now time.Time) error {
	how := endTexts[p.How]
	if strings.Contains(how, "%d") {
		how = fmt.Sprintf(how, p.Code)
	}
	ago := Span(now.UnixMilli() - p.EndedMs)
	if p.EndedMs == 0 {
		how, ago = "has not ended as far as the history knows, which had its last figures", Span(now.UnixMilli()-p.SeenMs)
	}
	lines := []string{fmt.Sprintf("job %d (%s) of %s %s %s ago, after %s.", p.ID, Named(p.Name, p.Command), cell(p.User), how, ago, Span(p.SeenMs-p.BeganMs))}
	if p.Peak > 0 {
		lines = append(lines, fmt.Sprintf("  it used at most %s of a device at once; memory times time: %s in all", accounting.Bytes(p.Peak).Human(), heldText(p.Held)))
	}
	switch {
	case p.Waits == 1:
		lines = append(lines, "  one of its requests waited, for "+Span(p.WaitedMs))
	case p.Waits > 1:
		lines = append(lines, fmt.Sprintf("  %d of its requests waited, for %s in all", p.Waits, Span(p.WaitedMs)))
	}
	if p.Refused > 0 || p.Refusal != "" {
		refused, why := "one of its requests was refused", ": "
		if p.Refused > 1 {
			refused, why = fmt.Sprintf("%d of its requests were refused", p.Refused), "; the last refusal: "
		}
		if p.Refusal == "" {
			why = ""
		}
		lines = append(lines, "  "+refused+why+Escape(p.Refusal))
	}
	_, err := fmt.Fprintln(w, strings.Join(lines, "\n"))
	return err
}

// heldText formats GiB-hours for a sentence: "9.68 GiB-seconds".
func heldText(gibHours float64) string {
	n, unit := readable(gibHours)
	return threeDigits(n) + " GiB-" + map[string]string{"s": "seconds", "min": "minutes", "h": "hours"}[unit]
}
