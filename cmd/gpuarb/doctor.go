package main

import (
	"context"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/doctor"
	"github.com/spf13/cobra"
)

func (a *app) doctorCommand() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use:   "doctor",
		Short: "check this machine, and say what to do about what is wrong",
		Long: "Checks the daemon, its socket, the GPUs, the shim, whether CUDA, NVML, OpenCL and Vulkan are caught, /dev/fuse, the mount, and who uses a GPU outside of gpuarb.\n" +
			"Exits with 0 when nothing is wrong, else with 1.",
		Args: takes(0, 0),
		RunE: func(*cobra.Command, []string) error {
			d := &doctor.Doctor{Root: "/", Patience: 5 * time.Second, Executable: a.executable, Environ: a.environ, Getenv: a.getenv,
				Ask: a.stateForDoctor, Slow: a.slow}
			return a.findings(d.Examine())
		},
	})
}

// stateForDoctor is the daemon's state, and the socket that took the connection.
func (a *app) stateForDoctor(ctx context.Context) (state accounting.Snapshot, socket string, err error) {
	defer a.slow(theDaemon)()
	client, err := a.connect(ctx)
	if err != nil {
		return state, "", err
	}
	defer client.Close()
	state, err = snapshotOf(ctx, client)
	return state, client.Path(), err
}

// findings prints what was found. The error has the exit code, when something is wrong.
func (a *app) findings(all []doctor.Finding) error {
	var err error
	if a.json {
		err = a.printJSON(all)
	} else {
		err = a.printFindings(all)
	}
	for _, f := range all {
		if err == nil && f.Verdict == doctor.Wrong {
			err = &exitError{code: exitFailed}
		}
	}
	return err
}

func (a *app) printFindings(all []doctor.Finding) error {
	for _, f := range all {
		if err := a.tell("%-8s%-9s%s\n", f.Verdict, f.Check, f.Text); err != nil {
			return err
		}
		if f.Advice == nil {
			continue
		}
		if err := a.tell("%17s→ %s\n", "", *f.Advice); err != nil {
			return err
		}
	}
	return nil
}
