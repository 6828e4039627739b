package main

// This file has `gpuarb doctor`: it calls package doctor, which examines the machine, and prints
// the findings.

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/cmd/gpuarb/doctor"
	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/spf13/cobra"
)

func (a *app) doctorCommand() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use:   "doctor",
		Short: "check this machine, and say what to do about what is wrong",
		Long: "Checks the daemon, its socket, the GPUs, the shim, whether CUDA, NVML, OpenCL and Vulkan are caught, /dev/fuse, the mount, and who uses a GPU outside of gpuarb.\n" +
			"Exits with 0 when nothing is wrong, else with 1.",
		Args: argumentCount(0, 0),
		RunE: func(*cobra.Command, []string) error {
			d := &doctor.Doctor{Root: "/", Timeout: 5 * time.Second, Executable: executable(), Environ: os.Environ(), Getenv: os.Getenv,
				Ask: a.stateForDoctor, Slow: a.slow}
			return a.findings(d.Examine())
		},
	})
}

// stateForDoctor returns the state of the daemon, and the socket that accepted the connection.
func (a *app) stateForDoctor(ctx context.Context) (state figures.Snapshot, socket string, err error) {
	defer a.slow(theDaemon)()
	client, err := a.connect(ctx)
	if err != nil {
		return state, "", err
	}
	defer client.Close()
	state, err = snapshotOf(ctx, client)
	return state, client.Path(), err
}

// findings prints the findings. If one of them is a fault, the returned error has the exit code.
func (a *app) findings(all []doctor.Finding) error {
	err := a.show(all, func(w io.Writer) error {
		for _, f := range all {
			fmt.Fprintf(w, "%-8s%-9s%s\n", f.Verdict, f.Check, f.Text)
			if f.Advice != nil {
				fmt.Fprintf(w, "%17s→ %s\n", "", *f.Advice)
			}
		}
		return nil
	})
	if err == nil && slices.ContainsFunc(all, func(f doctor.Finding) bool { return f.Verdict == doctor.Wrong }) {
		err = &exitError{code: exitFailed}
	}
	return err
}
