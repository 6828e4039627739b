package archive

// This file answers questions for reports and charts. serve.go calls it.

import (
	"context"
	"fmt"
	"slices"

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

// report sends the sums of a question, one for each value of q.By.
func (s *store) report(ctx context.Context, who reader, q rows.Question, nowMs int64, send func(rows.Line) error) error {
	key, names := map[string]string{"user": "j.user", "group": "j.grp", "name": "j.name", "unit": "j.unit", "command": "j.program", "job": "j.key", "device": "u.device"}[q.By],
		"(SELECT text FROM texts WHERE id = k)"
	switch q.By {
	case "job":
		names = "(SELECT 'job ' || job || ifnull(' ' || nullif(t.text, ''), '') FROM jobs LEFT JOIN texts t ON t.id = jobs.name WHERE jobs.key = k ORDER BY jobs.id DESC LIMIT 1)"
	case "device":
		names = "(SELECT number || ' ' || uuid FROM devices WHERE id = k)"
	}
	if !slices.Contains(rows.Groupings, q.By) {
		return fmt.Errorf("there is no grouping %q; there are %v", q.By, rows.Groupings)
	}
	since, until, part := window(q, nowMs)
	of, byDevice := "0", ""
	if q.By == "device" {
		of, byDevice = "device", ", device"
	}
	// The rows of one job lie together, so that the inner sums need no sorting. The outer sums sort one row for each job.
	all, err := s.read.QueryContext(ctx, `SELECT `+names+`, jobs, held, granted, reserved, committed, at_peak, peak, time, waited, idle, waits, refused FROM (
		SELECT `+key+` k, sum(j.how <> 'continued') jobs, sum(held) held, sum(granted) granted, sum(reserved) reserved, sum(committed) committed,
			sum(at_peak) at_peak, max(u.peak) peak, sum(time) time, sum(waited) waited, sum(idle) idle, sum(waits) waits, sum(refused) refused
		FROM (SELECT job, `+of+` device, sum(held*w) held, sum(granted*w) granted, sum(reserved*w) reserved, sum(committed*w) committed,
				sum(peak*(until-since)*w)/1000 at_peak, max(peak) peak, sum((until-since)*w) time,
				sum(waited*w) waited, sum(idle*w) idle, sum(waits) waits, sum(refused) refused
			FROM (SELECT *, `+part+` w FROM uses u WHERE u.hour BETWEEN ?1/3600000 AND ?2/3600000 AND u.until >= ?1 AND u.since <= ?2) GROUP BY job`+byDevice+`) u
			CROSS JOIN jobs j ON j.id = u.job
		WHERE ?3 < 0 OR j.uid = ?3 GROUP BY k) ORDER BY held DESC, 1`, since, until, who.only())
	if err != nil {
		return err
	}
	defer all.Close()
	for all.Next() {
		var r rows.Sum
		var name *string
		var timeMs, waitedMs, idleMs float64
		if err := all.Scan(&name, &r.Jobs, &r.Held, &r.Granted, &r.Reserved, &r.Committed, &r.AtPeak, &r.Peak, &timeMs, &waitedMs, &idleMs, &r.Waits, &r.Refused); err != nil {
			return err
		}
		if name != nil {
			r.Key = *name
		}
		for _, sum := range []*float64{&r.Held, &r.Granted, &r.Reserved, &r.Committed, &r.AtPeak} {
			*sum *= gibHours
		}
		r.Hours, r.Waited, r.Idle = timeMs/hourMs, waitedMs/hourMs, idleMs/hourMs
		if err := send(rows.Line{Sum: &r}); err != nil {
			return err
		}
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
