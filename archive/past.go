package archive

// This file answers questions about single jobs, for history, why and suggest. serve.go calls it.

import (
	"context"
	"encoding/json"

	"github.com/gpuarb/gpuarb/archive/rows"
)

// jobs sends the jobs of a question, the latest first. If several daemons counted a job, it is sent once, with the sums of all its rows.
func (s *store) jobs(ctx context.Context, who reader, q rows.Question, nowMs int64, send func(rows.Line) error) error {
	since, until, _ := window(q, nowMs)
	limit := q.Limit
	if limit <= 0 {
		limit = -1
	}
	where, args := "j.seen >= ?1 AND j.began <= ?2 AND (?3 < 0 OR j.uid = ?3)", []any{since, until, who.only(), limit}
	bind := func(condition string, value any) {
		args = append(args, value)
		where += condition
	}
	const ended = " AND j.ended > 0 AND (j.peak > 0 OR j.lacked > 0) AND j.uid = ?5"
	switch {
	case q.Want == rows.WantPeaks && q.Name == "":
		bind(ended+" AND j.program IN (SELECT id FROM texts WHERE text IN (?6, ?7))", who.uid)
		args = append(args, q.Program, rows.Hidden(q.Program))
	case q.Want == rows.WantPeaks:
		bind(ended+" AND j.name = (SELECT id FROM texts WHERE text = ?6)", who.uid)
		args = append(args, q.Name)
	case q.Job != 0:
		bind(" AND j.job = ?5", stored(q.Job))
	case q.Name != "":
		bind(" AND j.name = (SELECT id FROM texts WHERE text = ?5)", q.Name)
	}
	if !q.Running && q.Want == rows.WantJobs {
		where += " AND j.ended > 0"
	}
	all, err := s.read.QueryContext(ctx, `SELECT j.job, j.key, j.uid, (SELECT text FROM texts WHERE id = j.user), (SELECT text FROM texts WHERE id = j.grp),
			(SELECT text FROM texts WHERE id = j.name), (SELECT text FROM texts WHERE id = j.command), (SELECT text FROM texts WHERE id = j.unit),
			j.began, j.seen, j.ended, j.how, j.code, j.reasons, j.refusal, j.lacked
		FROM jobs j WHERE `+where+` AND j.how <> 'continued' ORDER BY j.seen DESC, j.id DESC LIMIT ?4`, args...)
	if err != nil {
		return err
	}
	defer all.Close()
	for all.Next() {
		var p rows.Past
		var key, reasons string
		if err := all.Scan(&p.ID, &key, &p.UID, &p.User, &p.Group, &p.Name, &p.Command, &p.Unit, &p.BeganMs, &p.SeenMs, &p.EndedMs, &p.How, &p.Code, &reasons, &p.Refusal, &p.LackedBy); err != nil {
			return err
		}
		_ = json.Unmarshal([]byte(reasons), &p.Reasons)
		if err := s.sumOf(ctx, key, &p); err != nil {
			return err
		}
		if err := send(rows.Line{Past: &p}); err != nil {
			return err
		}
	}
	return all.Err()
}

// sumOf fills in the sums over all rows of the job with a key, its peak, and its beginning.
func (s *store) sumOf(ctx context.Context, key string, p *rows.Past) error {
	err := s.read.QueryRowContext(ctx, `SELECT ifnull(sum(u.held), 0), ifnull(sum(u.reserved), 0), ifnull(sum(u.waits), 0), ifnull(sum(u.waited), 0), ifnull(sum(u.idle), 0), ifnull(sum(u.refused), 0)
		FROM jobs j JOIN uses u ON u.job = j.id WHERE j.key = ?`, key).Scan(&p.Held, &p.Reserved, &p.Waits, &p.WaitedMs, &p.IdleMs, &p.Refused)
	if err != nil {
		return err
	}
	p.Held, p.Reserved = p.Held*gibHours, p.Reserved*gibHours
	return s.read.QueryRowContext(ctx, "SELECT max(peak), min(began) FROM jobs WHERE key = ?", key).Scan(&p.Peak, &p.BeganMs)
}
