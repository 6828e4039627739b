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
	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/internal/report"
	"github.com/spf13/cobra"
)

// This file completes words in a shell. The shell runs gpuarb (cobra's __complete) with the words
// typed so far. It reads a line for each candidate, with a description after a tab. Completion asks
// the daemon each time the user presses the key, so it prints nothing on stderr and waits only
// briefly.

// completionTimeout bounds how long completion waits for the daemon.
const completionTimeout = time.Second

// harmless matches words without characters that have a meaning in a shell. Users choose the names
// of their jobs, and a shell evaluates the words before the word that it completes. So a name such
// as $(…), which another user chose, must not be offered.
var harmless = regexp.MustCompile(`^[A-Za-z0-9_.@+%,=/][A-Za-z0-9_.@+%,=/-]*$`)

// fromState completes a word from the state of the daemon, with the candidates that find returns.
// Words that are on the command line already are left out.
func (a *app) fromState(find func(figures.Snapshot) []cobra.Completion) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(context.Background(), completionTimeout)
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

// once completes only the first argument.
func once(of cobra.CompletionFunc) cobra.CompletionFunc {
	return func(command *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return of(command, args, begun)
	}
}

// described returns a candidate with a description: the user, the name of the job and the command.
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

// offerProcesses returns the PIDs of the programs that use gpuarb.
func offerProcesses(s figures.Snapshot) (all []cobra.Completion) {
	for _, p := range s.Processes {
		all = append(all, described(strconv.Itoa(p.PID), p.User, p.JobName, p.Command))
	}
	return all
}

// offerJobs returns the numbers of the jobs, and the names of jobs that have a name.
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

// offerUsers returns the users whose programs use gpuarb.
func offerUsers(s figures.Snapshot) (all []cobra.Completion) {
	for _, j := range s.Jobs {
		all = append(all, j.User)
	}
	return all
}

// offerCgroups returns the cgroups that have a limit, or in which a program uses gpuarb.
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
	if err := command.RegisterFlagCompletionFunc(name, of); err != nil { // the flag exists
		panic(err) // the flag is there
	}
}

// completeDevices offers devices for --device and --prefer. The processor cannot be claimed, and
// --prefer takes only GPUs.
func (a *app) completeDevices(command *cobra.Command) {
	for _, name := range []string{"device", "prefer"} {
		if command.Flags().Lookup(name) == nil {
			continue
		}
		starts := command.Name() == "run" || command.Name() == "claim"
		free := name == "device" && starts
		processor := name == "device" && command.Name() != "claim" && command.Name() != "plan"
		completeFlag(command, name, a.fromState(func(s figures.Snapshot) []cobra.Completion { return offerDevices(s, free, processor) }))
	}
}

// offerDevices returns the devices. If free is true, "any" is the first candidate. The processor, and
// with free "emptiest", are returned only if processor is true.
func offerDevices(s figures.Snapshot, free, processor bool) (all []cobra.Completion) {
	if free {
		all = append(all, cobra.CompletionWithDesc(anyDevice, "whichever is free"))
	}
	if free && processor {
		all = append(all, cobra.CompletionWithDesc(emptiestDevice, "the one with the most free memory"))
	}
	for _, d := range s.Devices {
		if d.IsGPU() || processor {
			all = append(all, cobra.CompletionWithDesc(accounting.IndexName(d.Index), fmt.Sprintf("%s, %s", report.Escape(d.Name), d.Total.Human())))
		}
	}
	return all
}

// tomlFiles tells the shell to offer configuration files.
func tomlFiles(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return []cobra.Completion{"toml"}, cobra.ShellCompDirectiveFilterFileExt
}
