package main

// This file has `gpuarb why`: it finds the jobs that are meant; package report explains them.

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"

	"github.com/gpuarb/gpuarb/archive/rows"
	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/internal/report"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/spf13/cobra"
)

func (a *app) whyCommand() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use:   "why [PID | JOB | NAME]",
		Short: "say what limits a program now, who holds what it waits for, and what can be done",
		Long: `Says what limits a program now and by which rule, who holds what it waits for and since when, and
what can be done. Without an argument it explains the job that it runs in, or all your jobs if it runs
in none. A number is the PID of a process that uses gpuarb; if there is none, it is the number of a job in gpuarb jobs.
NAME is that of gpuarb run --name, and stands for all jobs of that name. If none of them is left, it
says how the latest one ended.`,
		Args: argumentCount(0, 1),
		ValidArgsFunction: once(a.fromState(func(s figures.Snapshot) []cobra.Completion {
			return append(offerProcesses(s), offerJobs(s)...)
		})),
		RunE: func(_ *cobra.Command, args []string) error { return a.why(args) },
	})
}

func (a *app) why(args []string) error {
	var number uint64
	var name string
	if len(args) > 0 {
		var err error
		if number, err = strconv.ParseUint(args[0], 10, 63); err != nil && ipc.CheckBindingName(ipc.BindingName(args[0])) == nil {
			name = ipc.BindingName(args[0])
		} else if err != nil || number == 0 {
			return fail(exitUsage, "%q is neither a PID nor the number or name of a job; `gpuarb jobs` shows them", args[0])
		}
	}
	snapshot, err := a.snapshot()
	if err != nil {
		return err
	}
	wanted := func(j figures.JobState) bool { return j.UID == uint32(os.Getuid()) }
	if own := a.ownJob(); len(args) == 0 && own != 0 {
		wanted = func(j figures.JobState) bool { return j.ID == own }
	} else if name != "" {
		wanted = func(j figures.JobState) bool { return j.Name == name }
	} else if len(args) > 0 {
		job := jobOf(snapshot, number)
		if u := unmanaged(snapshot, number); u != nil && u.Job != 0 {
			job = u.Job
		} else if u != nil {
			return fail(exitFailed, "process %d (%s) runs without gpuarb: no limit holds for it, and it waits for nothing; start it with `gpuarb run`, or see `gpuarb help enable`",
				number, report.Escape(u.Command))
		}
		wanted = func(j figures.JobState) bool { return j.ID == job }
	}
	whys := report.Whys(snapshot, wanted)
	switch {
	case len(args) > 0 && len(whys) == 0 && !a.json && a.tellPast(os.Stdout, rows.Question{Job: number, Name: name}):
		return nil
	case name != "" && len(whys) == 0:
		return fail(exitFailed, "no job is called %q (any more); `gpuarb jobs` shows those that there are", name)
	case len(args) > 0 && len(whys) == 0:
		return fail(exitFailed, "%d is neither a process that uses gpuarb nor a job; `gpuarb jobs` shows both", number)
	}
	return a.show(whys, func(w io.Writer) error {
		if len(whys) == 0 {
			fmt.Fprintln(w, "Nothing of yours uses a GPU through gpuarb or waits for one. `gpuarb jobs` shows who does.")
		}
		return report.WriteWhy(w, whys)
	})
}

// ownJob returns the number of the job that this command runs in; 0: no job that a daemon knows.
func (a *app) ownJob() uint64 {
	job, err := ipc.ParseToken(os.Getenv("GPUARB_JOB"))
	if err != nil || job.IsZero() {
		return 0
	}
	tally, err := tallyOf(a.socketPaths(), job, daemonTimeout)
	if err != nil {
		return 0
	}
	return tally.Job
}

// unmanaged returns the process with this PID that uses a device without gpuarb, or nil.
func unmanaged(s figures.Snapshot, pid uint64) *figures.UnmanagedState {
	for _, u := range s.Unmanaged() {
		if uint64(u.PID) == pid {
			return u
		}
	}
	return nil
}

// jobOf returns the job of a process, or of a `gpuarb run`. If no process has the number, it
// returns the number.
func jobOf(s figures.Snapshot, number uint64) uint64 {
	if p := s.Process(int(number)); p != nil {
		return p.Job
	}
	if i := slices.IndexFunc(s.Jobs, func(j figures.JobState) bool { return uint64(j.PID) == number }); i >= 0 {
		return s.Jobs[i].ID
	}
	return number
}
