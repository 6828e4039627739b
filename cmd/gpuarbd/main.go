package main

// This file reads the flags and runs the daemon until a signal stops it. restart.go executes the
// program again, and manual.go writes the manual page.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gpuarb/gpuarb/archive"
	"github.com/gpuarb/gpuarb/archive/rows"
	"github.com/gpuarb/gpuarb/daemon"
	"github.com/gpuarb/gpuarb/internal/config"
	"github.com/gpuarb/gpuarb/internal/version"
	"github.com/gpuarb/gpuarb/internal/worker"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/web"
)

// The exit codes; docs/reference/exit-codes.md explains each.
const (
	exitFailed = 1
	exitUsage  = 2
	exitConfig = 78
)

func main() {
	// On some machines the library is preloaded into all programs, and so into this one. The
	// library would ask this daemon what the devices report, but the daemon needs the answers of
	// the devices themselves.
	_ = os.Setenv("GPUARB_DISABLE", "1")
	if len(os.Args) == 2 && os.Args[1] == worker.PageCommand {
		os.Exit(servePage())
	}
	if len(os.Args) == 2 && os.Args[1] == rows.Command {
		os.Exit(keepHistory())
	}
	code := run(os.Args[1:], os.Stdout, os.Stderr)
	daemon.Leave()
	os.Exit(code)
}

// servePage runs the process that serves the page. The daemon starts it.
func servePage() int {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil)).With("process", worker.PageCommand)
	if err := web.Run(os.Stdin, log); err != nil {
		log.Error("the page is not served", "err", err)
		return exitFailed
	}
	return 0
}

// keepHistory runs the process that keeps the history. The daemon starts it.
func keepHistory() int {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP) // it ends with the daemon, after it has written everything
	if err := archive.Run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "gpuarbd: the history: %v\n", err)
		return exitFailed
	}
	return 0
}

// usageError is a mistake on the command line.
type usageError struct{ error }

func run(args []string, stdout, stderr io.Writer) int {
	var o daemon.Options
	var check, debug, makeMount, clearMount bool
	var share string
	var out bytes.Buffer // a buffer, because cobra ignores errors of writing its help
	cmd := &cobra.Command{
		Use:   "gpuarbd",
		Short: "share the GPUs of this machine between unmodified programs",
		Long: "The daemon of gpuarb: finds the GPUs, decides who gets how much of their memory, how many streams and which\n" +
			"slots, and shows its state in /gpu. Programs come to it through the library that gpuarb run starts them with.",
		Version:       version.Version,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("unexpected argument %q: gpuarbd takes flags only", args[0])}
			}
			return nil
		},
		PreRunE: func(cmd *cobra.Command, _ []string) (err error) {
			cmd.Flags().Visit(func(f *pflag.Flag) {
				if f.Value.Type() == "string" && f.Value.String() == "" { // an empty value often comes from a variable that is not set: refuse it
					err = usageError{fmt.Errorf("--%s: the path is empty", f.Name)}
				}
			})
			return err
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if check {
				return checkConfig(o, &out)
			}
			if share != "" {
				return writeShare(cmd, share)
			}
			switch {
			case makeMount:
				return daemon.MakeMount(o)
			case clearMount:
				return daemon.ClearMount(o)
			}
			level := slog.LevelInfo
			if debug {
				level = slog.LevelDebug
			}
			o.Log = slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))
			return serve(o, stderr)
		},
	}
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(stderr)
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	f := cmd.Flags()
	f.BoolVar(&o.User, "user", false, "run for this user alone, in $XDG_RUNTIME_DIR/gpuarb")
	f.StringVar(&o.Socket, "socket", "", "listen on this path instead of /run/gpuarb/gpuarb.sock")
	f.StringVar(&o.Mount, "mount", "", "mount the filesystem here instead of /gpu; none: do not mount")
	f.StringVar(&o.Config, "config", "", "read this configuration instead of /etc/gpuarb/gpuarb.toml")
	f.StringVar(&o.Sysfs, "sysfs", "", "look for AMD's and Intel's devices below this directory instead of /sys")
	f.BoolVar(&check, "check-config", false, "report every mistake in the configuration and exit")
	f.BoolVar(&debug, "debug", false, "log every decision")
	// Only systemd's unit uses these two.
	f.BoolVar(&makeMount, "make-mount", false, "mount for the daemon that systemd starts next, and exit")
	f.BoolVar(&clearMount, "clear-mount", false, "unmount what the last daemon has left, and exit")
	_, _ = f.MarkHidden("make-mount"), f.MarkHidden("clear-mount")
	f.StringVar(&share, shareFlag, "", "write the manual page and completions below this folder")
	_ = f.MarkHidden(shareFlag) // only the build uses it; the flag exists, so the call cannot fail

	err := cmd.Execute()
	if err == nil {
		err = output(stdout, &out)
	}
	if err == nil {
		return 0
	}
	fmt.Fprintf(stderr, "gpuarbd: %v\n", err)
	return exitCode(err)
}

// output writes the output of a flag such as --help, and explains an error of writing.
func output(stdout io.Writer, out *bytes.Buffer) error {
	_, err := out.WriteTo(stdout)
	var at *os.PathError
	if errors.As(err, &at) {
		return fmt.Errorf("the output cannot be written: %w", at.Err)
	}
	return err
}

func exitCode(err error) int {
	var usage usageError
	var bad config.Mistakes
	switch {
	case errors.As(err, &usage):
		return exitUsage
	case errors.As(err, &bad):
		return exitConfig
	}
	return exitFailed
}

func checkConfig(o daemon.Options, out io.Writer) error {
	c, err := config.Load(o.ConfigPath())
	if err != nil {
		return err
	}
	_, err = io.WriteString(out, c.String())
	return err
}

// serve runs the daemon until INT or TERM. HUP makes it read the configuration again.
func serve(o daemon.Options, stderr io.Writer) error {
	// Files get the mode that the code names, whatever umask this process inherits. If other users
	// could not enter the folder of the socket, their programs would run without a limit.
	syscall.Umask(0o022)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)

	o.Handed = inheritedDescriptors()
	o.Restart = func(h *ipc.ListenerFDs) {
		if h == nil || ctx.Err() != nil {
			os.Exit(exitFailed)
		}
		err := execAgain(*h)
		fmt.Fprintf(stderr, "gpuarbd: cannot start itself again: %v\n", err)
		os.Exit(exitFailed)
	}
	d, err := daemon.Start(ctx, o)
	if errors.Is(err, context.Canceled) {
		return nil
	}
	if err != nil {
		return err
	}
	go func() {
		for range hup {
			d.Reload()
		}
	}()
	select {
	case <-ctx.Done():
		return d.Stop()
	case err := <-d.Failed():
		return errors.Join(err, d.Stop())
	}
}
