package main

import (
	"slices"
	"strconv"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/report"
	"github.com/spf13/cobra"
)

func (a *app) whyCommand() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use:   "why [PID | JOB]",
		Short: "say what limits a program now, who holds what it waits for, and what can be done",
		Long: `Says what limits a program now and by which rule, who holds what it waits for and since when, and
what can be done. Without an argument it tells of all your jobs. A number is taken for a process if
one of that PID uses gpuarb, else for a job, by the number that gpuarb jobs shows.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return a.why(args) },
	})
}

func (a *app) why(args []string) error {
	var number uint64
	if len(args) > 0 {
		var err error
		if number, err = strconv.ParseUint(args[0], 10, 63); err != nil || number == 0 {
			return fail(exitUsage, "%q is neither a PID nor the number of a job; `gpuarb jobs` shows both", args[0])
		}
	}
	snapshot, err := a.snapshot()
	if err != nil {
		return err
	}
	wanted := func(j accounting.JobState) bool { return j.UID == uint32(a.uid) }
	if len(args) > 0 {
		if u := unmanaged(snapshot, number); u != nil {
			return fail(exitFailed, "process %d (%s) runs without gpuarb: no limit holds for it, and it waits for nothing; start it with `gpuarb run`, or see `gpuarb help enable`",
				number, report.Escape(u.Command))
		}
		job := jobOf(snapshot, number)
		wanted = func(j accounting.JobState) bool { return j.ID == job }
	}
	whys := report.Whys(snapshot, wanted)
	switch {
	case len(args) > 0 && len(whys) == 0:
		return fail(exitFailed, "%d is neither a process that uses gpuarb nor a job; `gpuarb jobs` shows both", number)
	case a.json:
		return a.printJSON(whys)
	case len(whys) == 0:
		return a.tell("Nothing of yours uses a GPU through gpuarb or waits for one. `gpuarb jobs` shows who does.\n")
	}
	return report.WriteWhy(a.stdout, whys)
}

// unmanaged finds a process that uses a device without gpuarb; nil: there is none of that PID.
func unmanaged(s accounting.Snapshot, pid uint64) *accounting.UnmanagedState {
	for _, d := range s.Devices {
		for i := range d.UnmanagedBy {
			if uint64(d.UnmanagedBy[i].PID) == pid {
				return &d.UnmanagedBy[i]
			}
		}
	}
	return nil
}

// jobOf is the job of a process, or of gpuarb run itself, or the number as it is.
func jobOf(s accounting.Snapshot, number uint64) uint64 {
	for _, p := range s.Processes {
		if uint64(p.PID) == number {
			return p.Job
		}
	}
	if i := slices.IndexFunc(s.Jobs, func(j accounting.JobState) bool { return uint64(j.PID) == number }); i >= 0 {
		return s.Jobs[i].ID
	}
	return number
}
