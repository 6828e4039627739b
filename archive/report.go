package archive

// This file answers questions for reports and charts. serve.go calls it.

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/gpuarb/gpuarb/archive/rows"
)

// reader is the user at the other end of a connection.
type reader struct {
	uid uint32
	all bool // sees the rows of all users
}

// only returns the user whose rows the reader sees; −1: all users.
func (r reader) only() int64 {
	if r.all {
		return -1
	}
	return int64(r.uid)
}

// gibHours is a byte-second in GiB-hours.
const gibHours = 1.0 / (1 << 30) / 3600

// window returns the beginning and the end of the time of a question, in Unix milliseconds. part is an SQL expression for the share of a row
// of uses (alias u) that lies in that time, which is bound as ?1 and ?2.
func window(q rows.Question, nowMs int64) (since, until int64, part string) {
	since, until = q.SinceMs, q.UntilMs
	if until == 0 {
		until = nowMs + hourMs
	}
	return since, until, "CASE WHEN u.since >= ?1 AND u.until <= ?2 THEN 1.0 ELSE (min(u.until, ?2) - max(u.since, ?1)) * 1.0 / max(u.until - u.since, 1) END"
}

// keys are the expressions by which rows are grouped. The alias of the table uses is u, and that of jobs is j.
var keys = map[string]string{"user": "j.user", "group": "j.grp", "job": "j.id", "name": "j.name", "unit": "j.unit", "command": "j.program", "device": "u.device"}

// reportQuery returns the query that adds all rows of a report to the tally ?4. It passes over uses once, in the order of jobs, and sorts nothing.
func reportQuery(by, part string) string {
	return `SELECT count(add_use(?4, ` + keys[by] + `, ` + useArguments + `)) FROM (SELECT *, ` + part + ` w FROM uses u
			WHERE u.hour BETWEEN ?1/3600000 AND ?2/3600000 AND u.until >= ?1 AND u.since <= ?2) u CROSS JOIN jobs j ON j.id = u.job
		WHERE ?3 < 0 OR j.uid = ?3`
}

// report sends the sums of a question, one for each value of q.By, the largest first.
func (s *store) report(ctx context.Context, who reader, q rows.Question, nowMs int64, send func(rows.Line) error) error {
	if keys[q.By] == "" {
		return fmt.Errorf("there is no grouping %q; there are %v", q.By, rows.Groupings)
	}
	t, number, done := newTally()
	defer done()
	since, until, part := window(q, nowMs)
	tx, err := s.read.BeginTx(ctx, nil) // so that no text is removed before its number is looked up
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	t.byJob = q.By == "job"
	if err := t.readSeveral(ctx, tx); err != nil {
		return err
	}
	var none int // add_use returns NULL, so that the count is 0
	if err := tx.QueryRowContext(ctx, reportQuery(q.By, part), since, until, who.only(), number).Scan(&none); err != nil {
		return err
	}
	if err := t.complete(ctx, tx, q.By); err != nil {
		return err
	}
	for _, of := range t.totals {
		if err := send(rows.Line{Sum: &of.Sum}); err != nil {
			return err
		}
	}
	return nil
}

// readSeveral finds the jobs that several daemons counted. Each of them has a row of jobs for each daemon.
func (t *tally) readSeveral(ctx context.Context, tx *sql.Tx) error {
	all, err := tx.QueryContext(ctx, "SELECT key, id FROM jobs WHERE key IN (SELECT key FROM jobs WHERE how = 'continued') ORDER BY id")
	if err != nil {
		return err
	}
	defer all.Close()
	firsts := map[string]int64{}
	for all.Next() {
		var key string
		var id int64
		if err := all.Scan(&key, &id); err != nil {
			return err
		}
		if _, known := firsts[key]; !known {
			firsts[key] = id
		}
		t.first[id] = firsts[key]
	}
	return all.Err()
}

// complete sets the keys of the totals, converts their units, and sorts them.
func (t *tally) complete(ctx context.Context, tx *sql.Tx, by string) error {
	texts := map[int64]string{}
	for _, of := range t.totals {
		if by == "job" {
			of.key = of.name
		}
		texts[of.key] = ""
	}
	from := "SELECT id, text FROM texts"
	if by == "device" {
		from = fmt.Sprintf("SELECT id, CASE number WHEN %d THEN '' ELSE trim(number || ' ' || uuid) END FROM devices", rows.NoDevice)
	}
	if err := readTexts(ctx, tx, from, texts); err != nil {
		return err
	}
	for _, of := range t.totals {
		if of.Key = texts[of.key]; by == "job" {
			name := of.Key
			if of.Key = "job " + strconv.FormatInt(of.job, 10); name != "" {
				of.Key += " " + name
			}
		}
		for _, sum := range []*float64{&of.Held, &of.Granted, &of.Reserved, &of.Committed, &of.AtPeak} {
			*sum *= gibHours
		}
		of.Hours, of.Waited, of.Idle = of.Hours/hourMs, of.Waited/hourMs, of.Idle/hourMs
	}
	slices.SortFunc(t.totals, func(a, b *total) int { return cmp.Or(cmp.Compare(b.Held, a.Held), cmp.Compare(a.Key, b.Key)) })
	return nil
}

// readTexts sets the values of texts to those that a query has for its keys.
func readTexts(ctx context.Context, tx *sql.Tx, from string, texts map[int64]string) error {
	list, err := json.Marshal(slices.Collect(maps.Keys(texts)))
	if err != nil {
		return err
	}
	all, err := tx.QueryContext(ctx, from+" WHERE id IN (SELECT value FROM json_each(?))", string(list))
	if err != nil {
		return err
	}
	defer all.Close()
	for all.Next() {
		var number int64
		var text string
		if err := all.Scan(&number, &text); err != nil {
			return err
		}
		texts[number] = text
	}
	return all.Err()
}

// minutes sends the minutes of a question. Each reader may see all of them, because they have figures of devices and none of users.
func (s *store) minutes(ctx context.Context, q rows.Question, nowMs int64, send func(rows.Line) error) error {
	since, until, _ := window(q, nowMs)
	all, err := s.read.QueryContext(ctx, `SELECT minute, d.number, d.uuid, used, reserved, grantable, unmanaged, total FROM minutes m JOIN devices d ON d.id = m.device
		WHERE minute BETWEEN ?/60000 AND ?/60000 ORDER BY minute, d.number`, since, until)
	if err != nil {
		return err
	}
	defer all.Close()
	for all.Next() {
		var m rows.Minute
		if err := all.Scan(&m.Minute, &m.Device, &m.UUID, &m.Used, &m.Reserved, &m.Grantable, &m.Unmanaged, &m.Total); err != nil {
			return err
		}
		if err := send(rows.Line{Minute: &m}); err != nil {
			return err
		}
	}
	return all.Err()
}
