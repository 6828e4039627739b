package main

// This file has `gpuarb queue`, which shows the waiting requests, and `gpuarb queue cancel`.

import (
	"context"
	"math"
	"strconv"

	"github.com/gpuarb/gpuarb/internal/report"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/spf13/cobra"
)

func (a *app) queueCommand() *cobra.Command {
	rows := &rowFlags{columns: report.QueueColumns(), waits: true}
	queue := a.tableCommand(&cobra.Command{
		Use:   "queue",
		Short: "show what waits, one line per request, as /gpu/queue",
	}, func(style report.Style) error {
		return a.showTable(style, rows, report.Style.Queue, report.Style.QueueJSON)
	})
	a.addRowFlags(queue, rows)
	queue.AddCommand(&cobra.Command{
		Use:   "cancel TICKET…",
		Short: "take requests out of the queue, by the number that queue shows",
		Long: "Takes requests out of the queue. Whoever waits gets the error that he would have got\n" +
			"without waiting, so gpuarb run and claim end with 75. Your own, or as root anybody's.",
		Args:              argumentCount(1, math.MaxInt),
		ValidArgsFunction: a.fromState(offerTickets),
		RunE:              func(_ *cobra.Command, args []string) error { return a.queueCancel(args) },
	})
	return queue
}

// queueCancel cancels all tickets that it can. It fails if one of the tickets did not wait.
func (a *app) queueCancel(args []string) error {
	tickets := make([]uint64, len(args))
	for i, arg := range args {
		ticket, err := strconv.ParseUint(arg, 10, 64)
		if err != nil || ticket == 0 {
			return fail(exitUsage, "%q is no ticket; `gpuarb queue` shows their numbers", arg)
		}
		tickets[i] = ticket
	}
	return a.ask(func(ctx context.Context, client *ipc.Client) error { return a.cancelAll(ctx, client, tickets) })
}

func (a *app) cancelAll(ctx context.Context, client *ipc.Client, tickets []uint64) (failed error) {
	for _, ticket := range tickets {
		n, err := client.Cancel(ctx, ipc.CancelRequest{Ticket: ticket})
		switch {
		case err != nil:
			err = &exitError{exitFailed, explainCall(client.Path(), err)}
		case n == 0:
			err = fail(exitFailed, "ticket %d does not wait (any more); `gpuarb queue` lists those that do", ticket)
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
