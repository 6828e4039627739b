package main

// This file has `gpuarb suggest` and the value auto of `gpuarb run --memory`: what a command needs, by what its earlier runs used. past.go asks
// the history.

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/archive/rows"
	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/internal/report"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/spf13/cobra"
)

const (
	// memoryAuto is the value of --memory that stands for the suggestion of `gpuarb suggest`.
	memoryAuto = "auto"
	// suggestRuns is the number of runs that count. They are the latest ones.
	suggestRuns = 20
	// suggestStep is the step to whose next multiple a suggestion is rounded up, unless the largest device has less.
	suggestStep accounting.Bytes = 64 << 20
)

// need is a suggestion, with the runs that it comes from.
type need struct {
	Program string           `json:"program"`
	Name    *string          `json:"name"`
	Runs    int              `json:"runs"`
	Peak    accounting.Bytes `json:"peak_bytes"`    // largest peak of all runs; the run with the largest need may have had a smaller one
	Refused accounting.Bytes `json:"refused_bytes"` // request that the run with the largest need was refused, in addition to its peak; 0: none
	Memory  accounting.Bytes `json:"memory_bytes"`
	Last    string           `json:"last"`                // when the latest of the runs began
	With    accounting.Bytes `json:"deciding_peak_bytes"` // peak of the run with the largest need, to which Refused is added
	Job     uint64           `json:"deciding_job"`        // number of that run
	bounded bool             // Memory is what the largest device has, because the runs needed more
}

func (a *app) suggestCommand() *cobra.Command {
	var name string
	command := a.jsonFlag(&cobra.Command{
		Use:   "suggest [--name NAME] [--] [COMMAND [ARGUMENT…]]",
		Short: "say how much memory a command needs, by what its earlier runs used",
		Long: `Says how much memory a command needs: the largest peak of its last 20 runs, plus a tenth, up to the next 64 MiB. If a run was
refused memory, the largest refused request is added to its peak. Only your own runs that have ended count, with or without gpuarb run.
Runs belong to one command if they have the same executable, and for an interpreter the same script. With --name, the runs of
that name count. Other arguments do not matter.

The amount goes to stdout: gpuarb run --memory "$(gpuarb suggest -- COMMAND)" uses it, and gpuarb run --memory auto does
the same. Without an earlier run both fail with 125.`,
		Args: func(_ *cobra.Command, args []string) error {
			if strings.TrimSpace(strings.Join(args, "")) == "" && name == "" {
				return fmt.Errorf("no command was given: gpuarb suggest -- COMMAND, or gpuarb suggest --name NAME")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			n, err := a.needOf(name, args)
			if err != nil {
				return err
			}
			if !a.json {
				a.say("%s", n.reason())
			}
			return a.show(n, func(w io.Writer) error {
				_, err := fmt.Fprintln(w, n.size())
				return err
			})
		},
	})
	command.Flags().SetInterspersed(false) // arguments after COMMAND belong to the command
	command.Flags().StringVar(&name, "name", "", "count the runs of this name; if there are none, those of COMMAND")
	return command
}

// size returns the suggestion as a value of --memory.
func (n *need) size() string { return strconv.FormatUint(uint64(n.Memory>>20), 10) + "MiB" }

// reason says in one line how a suggestion was found.
func (n *need) reason() string {
	runs := "the last run"
	if n.Runs > 1 {
		runs = fmt.Sprintf("the last %d runs", n.Runs)
	}
	of := n.Program
	if n.Name != nil {
		of = *n.Name
	}
	text := fmt.Sprintf("%s of %s used at most %s on a device", runs, report.Escape(of), n.Peak.Human())
	base := n.Peak
	if n.Refused > 0 {
		who := "it"
		if n.Runs > 1 {
			who = "the run that needed most"
		}
		base = n.With.Plus(n.Refused)
		text = fmt.Sprintf("%s of %s: %s used at most %s on a device and was refused another %s", runs, report.Escape(of), who, n.With.Human(), n.Refused.Human())
	}
	if n.bounded {
		return fmt.Sprintf("%s; %s plus a tenth is more than the largest device has: %s", text, base.Human(), n.Memory.Human())
	}
	return fmt.Sprintf("%s; %s plus a tenth, rounded up: %s", text, base.Human(), n.Memory.Human())
}

// needOf returns what a command needs. If a name is given, its runs count; if there are none, those of the command. Without any run the error
// has the exit code 125.
func (a *app) needOf(name string, args []string) (n need, err error) {
	command := ipc.MakeText(strings.Join(args, " ")) // as the daemon is told of it
	n.Program = rows.ProgramOf(command.String())
	n.Name = report.Unless(name, "")
	var runs []rows.Past
	q := rows.Question{Want: rows.WantPeaks, Limit: suggestRuns, Name: name, Program: n.Program}
	each := func(l rows.Line) { runs = append(runs, *l.Past) }
	if err = a.askPast(q, each); err == nil && len(runs) == 0 && name != "" && n.Program != "" {
		n.Name, q.Name = nil, ""
		err = a.askPast(q, each)
	}
	if err != nil {
		return n, fail(exitRunFailed, "what the command needs is not known: %w", err)
	}
	if len(runs) == 0 {
		begin := []string{"gpuarb", "run"}
		if name != "" {
			begin = append(begin, "--name", name)
		}
		return n, fail(exitRunFailed, "the history has no run of %s by you that used GPU memory and has ended; run it once without --memory auto, with room to spare: %s -- %s",
			report.Escape(cmp.Or(n.Program, name)), commandLine(begin...), cmp.Or(commandLine(args...), "COMMAND"))
	}
	largest, err := a.largestDevice()
	if err != nil {
		return n, err
	}
	n.count(runs, largest)
	return n, nil
}

// count computes the suggestion from earlier runs, the latest first. It is at most what the largest device has.
func (n *need) count(runs []rows.Past, largest accounting.Bytes) {
	n.Runs, n.Last = len(runs), time.UnixMilli(runs[0].BeganMs).UTC().Format(time.RFC3339)
	var most accounting.Bytes
	for _, r := range runs {
		peak, lacked := accounting.Bytes(r.Peak), accounting.Bytes(r.LackedBy)
		n.Peak = max(n.Peak, peak)
		if sum := peak.Plus(lacked); sum > most {
			most, n.With, n.Refused, n.Job = sum, peak, lacked, r.ID
		}
	}
	n.Memory = most.Plus((most + 9) / 10)
	n.Memory = (n.Memory + suggestStep - 1) / suggestStep * suggestStep
	if n.bounded = largest > 0 && n.Memory > largest; n.bounded {
		n.Memory = largest
	}
}

// largestDevice returns the memory of the largest GPU; 0: there is none.
func (a *app) largestDevice() (most accounting.Bytes, err error) {
	snapshot, err := a.snapshot()
	for _, d := range figures.GPUs(snapshot.Devices) {
		most = max(most, d.Total)
	}
	return most, err
}

// setMemory replaces --memory auto by what the command needs, and says so.
func (a *app) setMemory(options *jobOptions, args []string) error {
	if options.memory != memoryAuto {
		return nil
	}
	n, err := a.needOf(options.name, args)
	if err != nil {
		return fail(exitRunFailed, "--memory auto: %w", err)
	}
	options.memory = n.size()
	if !a.quiet() {
		a.say("--memory auto: %s", n.reason())
	}
	return nil
}
