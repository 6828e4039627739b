package main

// This file has the commands report and history, and asks the history's process, whose socket is beside the daemon's. The history is that of
// jobs; events.go reads the event history. suggest.go computes what a command needs.

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpuarb/gpuarb/archive/rows"
	"github.com/gpuarb/gpuarb/internal/report"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// reportTimeout is the longest time that a command waits for an answer. It is enough for a report over years.
const reportTimeout = time.Minute

// pastJobs is the number of jobs that `gpuarb history` shows without --limit.
const pastJobs = 50

// period is the flags --since and --until.
type period struct{ since, until string }

func (p *period) addTo(command *cobra.Command, since string) {
	command.Flags().StringVar(&p.since, "since", since, "begin at this time: 2h or 7d ago, or a time such as 14:30, 2026-11-25 or \"2026-11-25 14:30\"; all: from the beginning")
	command.Flags().StringVar(&p.until, "until", "", "end at this time, in the same forms as --since; without it, now")
}

// question adds the period to a question.
func (p *period) question(q rows.Question) (rows.Question, error) {
	now := time.Now()
	if p.since != "all" {
		at, err := parseSince(p.since, now)
		if err != nil {
			return q, fail(exitUsage, "--since: %w", err)
		}
		q.SinceMs = at.UnixMilli()
	}
	if p.until != "" {
		at, err := parseSince(p.until, now)
		if err != nil {
			return q, fail(exitUsage, "--until: %w", err)
		}
		if q.UntilMs = at.UnixMilli(); q.UntilMs <= q.SinceMs {
			return q, fail(exitUsage, "--until %s is not after --since %s", p.until, p.since)
		}
	}
	return q, nil
}

func (a *app) reportCommand() *cobra.Command {
	var by string
	var when period
	var asCSV bool
	command := a.tableCommand(&cobra.Command{
		Use:   "report",
		Short: "sum up what users, jobs or devices held, reserved and waited for",
		Long: `Sums up the history of jobs. HELD is the memory that programs held, times the time that they held it: 1 GiB for an hour is
1 GiB-h. RESERVED is the same of reservations. AT-PEAK is what HELD would be if each job had held its peak all the time.
PEAK is the largest peak of a job on one device. WAITED, REFUSED and IDLE say how long requests waited, how many were
refused, and how long jobs held memory without using the device. Programs without gpuarb run count as well. You see your
own jobs, and root sees those of all users. With --bytes, HELD, RESERVED and AT-PEAK are GiB-hours without a unit.

The amounts are exact, except that the daemon sees some frees up to 20 ms late, or later if there are more than 200 leases.`,
	}, func(style report.Style) error {
		if !slices.Contains(rows.Groupings, by) {
			return fail(exitUsage, "--by: there is no grouping %q; give one of %s", by, strings.Join(rows.Groupings, ", "))
		}
		if asCSV && a.json {
			return fail(exitUsage, "--json and --csv are two forms of one report: give one of them")
		}
		q, err := when.question(rows.Question{Want: rows.WantReport, By: by})
		if err != nil {
			return err
		}
		sums := []rows.Sum{}
		if err := a.askPast(q, func(l rows.Line) { sums = append(sums, *l.Sum) }); err != nil {
			return err
		}
		return a.show(report.Totals(sums), func(w io.Writer) error {
			if asCSV {
				return report.SumsCSV(w, sums)
			}
			return style.Sums(w, by, sums)
		})
	})
	command.Flags().StringVar(&by, "by", "user", "make a line for each: "+strings.Join(rows.Groupings, ", "))
	when.addTo(command, "7d")
	command.Flags().BoolVar(&asCSV, "csv", false, "print CSV; the header has the keys of --json")
	completeFlag(command, "by", cobra.FixedCompletions(rows.Groupings, cobra.ShellCompDirectiveNoFileComp))
	return command
}

func (a *app) historyCommand() *cobra.Command {
	var when period
	var limit int
	var all bool
	var job []string
	command := a.tableCommand(&cobra.Command{
		Use:   "history [JOB | NAME]",
		Short: "list the jobs that have ended, the latest first",
		Long: `Lists the jobs that have ended, the latest first: when they began, how long they ran, how they ended (exit:1, signal:9; died: the
process ended while it held something; closed: it held nothing any more; refused: it never began; unknown: it was gone when the
daemon was started again), the most memory that they used on one device, GiB-hours held, how long requests waited, and how
many were refused. With a number it lists that job alone, with a name the jobs of that name. You see your own jobs, root those of all users.`,
	}, func(style report.Style) error {
		q, err := when.question(rows.Question{Want: rows.WantJobs, Limit: limit, Running: all})
		if err != nil {
			return err
		}
		if limit < 0 {
			return fail(exitUsage, "--limit %d: give the number of jobs to show, or 0 for all", limit)
		}
		if len(job) > 0 {
			if q.Job, err = strconv.ParseUint(job[0], 10, 63); err != nil || q.Job == 0 {
				q.Name = job[0] // a job name is never a number, and no job is numbered 0: "0" matches nothing
			}
		}
		pasts := []rows.Past{}
		if err := a.askPast(q, func(l rows.Line) { pasts = append(pasts, *l.Past) }); err != nil {
			return err
		}
		if len(pasts) == 0 && len(job) > 0 {
			return fail(exitFailed, "the history has no job %q that has ended in that time; `gpuarb history --limit 0` lists all jobs that it has", job[0])
		}
		return a.show(report.EndedJobs(pasts), func(w io.Writer) error { return style.Pasts(w, pasts) })
	})
	command.Args = argumentCount(0, 1)
	run := command.RunE
	command.RunE = func(c *cobra.Command, args []string) error {
		job = args
		return run(c, args)
	}
	when.addTo(command, "all")
	command.Flags().IntVar(&limit, "limit", pastJobs, "show at most this many jobs; 0: all")
	command.Flags().BoolVar(&all, "all", false, "also show jobs that still run")
	return command
}

// askPast asks the history a question, and calls each for every line of the answer.
func (a *app) askPast(q rows.Question, each func(rows.Line)) error {
	ctx, cancel := context.WithTimeout(context.Background(), reportTimeout)
	defer cancel()
	defer a.slow("the history to answer")()
	client, err := a.dial(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	a.sayWhichDaemon(client.Path())
	return askPastOf(ctx, client, q, each)
}

// askPastOf asks the history's process of the daemon to which client is connected, and calls each for every line of the answer.
func askPastOf(ctx context.Context, client *ipc.Client, q rows.Question, each func(rows.Line)) error {
	path := pastSocket(client.Path())
	err := rows.Ask(ctx, path, q, func(l rows.Line) error {
		each(l)
		return nil
	})
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrNotExist) && onlyClientFolder(client.Path()):
		return fail(exitUnavailable, "a container does not get the history by %s: ask on the machine itself", filepath.Dir(client.Path()))
	case errors.Is(err, rows.ErrEndedEarly) && !errors.Is(err, context.DeadlineExceeded):
		return fail(exitUnavailable, "the history's process at %s has ended the connection before its answer: it is started again, or cannot open its files; "+
			"ask again, or see `gpuarb doctor`", path)
	case errors.Is(err, unix.EAGAIN):
		return fail(exitUnavailable, "too many programs ask the history at once, at %s: ask again", path)
	case errors.Is(err, os.ErrNotExist), errors.Is(err, unix.ECONNREFUSED):
		return fail(exitUnavailable, "the daemon at %s keeps no history at present: its configuration has history = \"none\", it is of an older version, "+
			"or the history's process does not run; `gpuarb doctor` says more", client.Path())
	case errors.Is(err, unix.EACCES):
		return fail(exitUnavailable, "%s", mayNotConnect(path))
	case errors.Is(err, context.DeadlineExceeded):
		return fail(exitUnavailable, "the history's process at %s has not answered within %v: ask for a shorter time (--since), or see `gpuarb doctor`", path, reportTimeout)
	}
	return fail(exitFailed, "the history's process cannot answer: %w", err)
}

// pastSocket returns the path of the history's socket, given the path of the daemon's socket. The latter may lie in the folder for containers,
// where the history has no socket.
func pastSocket(daemon string) string {
	if outer := ipc.SecondPath(daemon); outer != "" && len(outer) < len(daemon) {
		return rows.SocketOf(outer)
	}
	return rows.SocketOf(daemon)
}

// onlyClientFolder reports whether the path of the daemon's socket lies in the folder for containers, and the daemon's own folder is not there.
func onlyClientFolder(daemon string) bool {
	outer := ipc.SecondPath(daemon)
	_, err := os.Lstat(outer)
	return outer != "" && len(outer) < len(daemon) && errors.Is(err, os.ErrNotExist)
}

// tellPast writes how the latest job of a question ended. gpuarb why calls it if the daemon does not know the job any more. false: the
// history does not know such a job either, or does not answer.
func (a *app) tellPast(w io.Writer, q rows.Question) (told bool) {
	q.Want, q.Limit, q.Running = rows.WantJobs, 1, true // a job may have ended while no daemon ran, and the next one waits for it
	var past *rows.Past
	if err := a.askPast(q, func(l rows.Line) { past = l.Past }); err != nil || past == nil {
		return false
	}
	return report.WritePast(w, *past, time.Now()) == nil
}
