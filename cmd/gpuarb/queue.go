package main

import (
	"context"
	"fmt"
	"math"
	"strconv"

	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/report"
	"github.com/spf13/cobra"
)

func (a *app) queueCommand() *cobra.Command {
	queue := a.tableCommand(&cobra.Command{
		Use:   "queue",
		Short: "show what waits, one line per request, as /gpu/queue",
	}, false, func(style report.Style) error { return a.showTable(style.Queue, report.QueueJSON) })
	queue.AddCommand(&cobra.Command{
		Use:   "cancel TICKET…",
		Short: "take requests out of the queue, by the number that queue shows",
		Long: "Takes requests out of the queue. Whoever waits gets the error that he would have got\n" +
			"without waiting, so gpuarb run and claim end with 75. Your own, or as root anybody's.",
		Args:              takes(1, math.MaxInt),
		ValidArgsFunction: a.completeTickets,
		RunE:              func(_ *cobra.Command, args []string) error { return a.queueCancel(args) },
	})
	return queue
}

// queueCancel cancels tickets: all that it can, and fails if one was not there.
func (a *app) queueCancel(args []string) error {
	tickets := make([]uint64, len(args))
	for i, arg := range args {
		ticket, err := strconv.ParseUint(arg, 10, 64)
		if err != nil || ticket == 0 {
			return fail(exitUsage, "%q is no ticket; `gpuarb queue` shows their numbers", arg)
		}
		tickets[i] = ticket
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	client, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	var failed error
	for _, ticket := range tickets {
		n, err := client.Cancel(ctx, ipc.CancelRequest{Ticket: ticket})
		switch {
		case err != nil:
			err = &exitError{exitFailed, explainCall(client.Path(), err)}
		case n == 0:
			err = fail(exitFailed, "ticket %d does not wait (any more)", ticket)
		default:
			continue
		}
		if failed != nil {
			a.say("%v", failed)
		}
		failed = err
	}
	return failed
}

// completeTickets offers the tickets that wait.
func (a *app) completeTickets(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	snapshot, err := a.snapshot()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var offers []cobra.Completion
	for _, t := range snapshot.Queue {
		offers = append(offers, cobra.CompletionWithDesc(strconv.FormatUint(t.Ticket, 10),
			fmt.Sprintf("%s: %s", report.Escape(t.User), report.Escape(t.Command))))
	}
	return offers, cobra.ShellCompDirectiveNoFileComp
}

// completeDevices offers the devices for --device and --prefer.
func (a *app) completeDevices(command *cobra.Command) {
	offer := func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		snapshot, err := a.snapshot()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		offers := []cobra.Completion{cobra.CompletionWithDesc(anyDevice, "whichever is free")}
		for _, d := range snapshot.Devices {
			if !d.IsGPU() && command.Name() == "claim" {
				continue
			}
			offers = append(offers, cobra.CompletionWithDesc(strconv.Itoa(d.Index), report.Escape(d.Name)))
		}
		return offers, cobra.ShellCompDirectiveNoFileComp
	}
	for _, name := range []string{"device", "prefer"} {
		if command.Flags().Lookup(name) != nil {
			if err := command.RegisterFlagCompletionFunc(name, offer); err != nil {
				panic(err) // the flag is there
			}
		}
	}
}
