package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/figures"
	"github.com/gpuarb/gpuarb/report"
	"github.com/spf13/cobra"
)

// Shell completion: the shell runs gpuarb (cobra's __complete) with the words typed so far, and gets a line for each
// candidate, with a description after a tab. The daemon is asked at every press of the key, so nothing is printed on stderr
// and the wait is short.

// completionPatience is how long completion waits for the daemon.
const completionPatience = time.Second

// harmless matches words without characters that mean something to a shell. Users choose the names of their jobs, and a shell
// evaluates the words before the one that it completes: another user's $(…) must not get there.
var harmless = regexp.MustCompile(`^[A-Za-z0-9_.@+%,=/][A-Za-z0-9_.@+%,=/-]*$`)

// fromState completes a word with what find returns of the daemon's state, without the words given already.
func (a *app) fromState(find func(figures.Snapshot) []cobra.Completion) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(context.Background(), completionPatience)
		defer cancel()
		snapshot, err := a.quietSnapshot(ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var found []cobra.Completion
		for _, c := range find(snapshot) {
			word, _, _ := strings.Cut(c, "\t")
			if !slices.Contains(args, word) && harmless.MatchString(word) && !slices.Contains(found, c) {
				found = append(found, c)
			}
		}
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}

// once completes the first argument alone.
func once(of cobra.CompletionFunc) cobra.CompletionFunc {
	return func(command *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return of(command, args, begun)
	}
}

// described is a candidate, described by the user, the job's name and the command.
func described(word, user, name, command string) cobra.Completion {
	about := user + ": "
	if name != "" {
		about += name + ": "
	}
	return cobra.CompletionWithDesc(word, shortened(report.Escape(about+command)))
}

// shortened cuts a description so that it fits on a line with its candidate.
func shortened(text string) string {
	const most = 64
	if all := []rune(text); len(all) > most {
		return string(all[:most-1]) + "…"
	}
	return text
}

// offerProcesses are the PIDs of programs that use gpuarb.
func offerProcesses(s figures.Snapshot) (all []cobra.Completion) {
	for _, p := range s.Processes {
		all = append(all, described(strconv.Itoa(p.PID), p.User, p.JobName, p.Command))
	}
	return all
}

// offerJobs are the numbers of jobs, and the names of those that have one.
func offerJobs(s figures.Snapshot) (all []cobra.Completion) {
	for _, j := range s.Jobs {
		all = append(all, described(strconv.FormatUint(j.ID, 10), j.User, j.Name, j.Command))
		if j.Name != "" {
			all = append(all, described(j.Name, j.User, "", j.Command))
		}
	}
	return all
}

func offerTickets(s figures.Snapshot) (all []cobra.Completion) {
	for _, t := range s.Queue {
		all = append(all, described(strconv.FormatUint(t.Ticket, 10), t.User, t.JobName, t.Command))
	}
	return all
}

// offerUsers are the users whose programs use gpuarb.
func offerUsers(s figures.Snapshot) (all []cobra.Completion) {
	for _, j := range s.Jobs {
		all = append(all, j.User)
	}
	return all
}

// offerCgroups are those in which programs run that use gpuarb, or which have a limit.
func offerCgroups(s figures.Snapshot) (all []cobra.Completion) {
	for at := range s.Cgroups() {
		if at != "/" {
			all = append(all, at)
		}
	}
	return all
}

func offerRules(s figures.Snapshot) (all []cobra.Completion) {
	for _, r := range s.Rules {
		all = append(all, cobra.CompletionWithDesc(r.Name, report.Escape(r.Title)))
	}
	return all
}

// completeFlag completes the value of a flag of a command.
func completeFlag(command *cobra.Command, name string, of cobra.CompletionFunc) {
	if err := command.RegisterFlagCompletionFunc(name, of); err != nil {
		panic(err) // the flag is there
	}
}

// completeDevices offers the devices for --device and --prefer: nobody claims the processor, and what is preferred is a GPU.
func (a *app) completeDevices(command *cobra.Command) {
	for _, name := range []string{"device", "prefer"} {
		if command.Flags().Lookup(name) == nil {
			continue
		}
		free := name == "device" && command.Name() != "limit"
		processor := name == "device" && command.Name() != "claim"
		completeFlag(command, name, a.fromState(func(s figures.Snapshot) []cobra.Completion { return offerDevices(s, free, processor) }))
	}
}

// offerDevices are the devices, with whichever is free and the processor, or without.
func offerDevices(s figures.Snapshot, free, processor bool) (all []cobra.Completion) {
	if free {
		all = append(all, cobra.CompletionWithDesc(anyDevice, "whichever is free"))
	}
	for _, d := range s.Devices {
		if d.IsGPU() || processor {
			all = append(all, cobra.CompletionWithDesc(accounting.IndexName(d.Index), fmt.Sprintf("%s, %s", report.Escape(d.Name), d.Total.Human())))
		}
	}
	return all
}

// tomlFiles has the shell offer configuration files.
func tomlFiles(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return []cobra.Completion{"toml"}, cobra.ShellCompDirectiveFilterFileExt
}
