package main

// This file has `gpuarb metrics`. Package metrics, which the daemon uses, computes the metrics.

import (
	"context"
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/gpuarb/gpuarb/ipc"
)

func (a *app) metricsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "metrics",
		Short: "print the daemon's metrics in Prometheus' text format, as /gpu/metrics",
		Long: `Prints the daemon's metrics at this moment in Prometheus' text format, as /gpu/metrics. The textfile
collector of node_exporter can take them: gpuarb metrics > gpuarb.prom`,
		Args: argumentCount(0, 0),
		RunE: func(*cobra.Command, []string) error { return a.metrics() },
	}
}

func (a *app) metrics() error {
	return a.ask(func(ctx context.Context, client *ipc.Client) error {
		a.sayWhichDaemon(client.Path())
		text, err := client.Metrics(ctx)
		switch {
		case errors.Is(err, ipc.StatusUnknownType):
			return fail(exitUnavailable, "the daemon at %s is older than this gpuarb, and has no metrics", client.Path())
		case err != nil:
			return &exitError{exitUnavailable, explainCall(client.Path(), err)}
		}
		_, err = os.Stdout.Write(text)
		return err
	})
}
