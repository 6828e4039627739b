package main

// This file has `gpuarb cdi generate`, and the advice that `gpuarb run` prints before it starts a
// container engine. Package container has the contents of the CDI file, and the flags.

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/gpuarb/gpuarb/cmd/gpuarb/container"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/shim"
	"github.com/spf13/cobra"
)

func (a *app) cdiCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "cdi",
		Short: "let container engines put a container under a budget with --device",
		Args:  cobra.ArbitraryArgs,
		RunE:  wantsSubcommand,
	}
	var output string
	generate := &cobra.Command{
		Use:   "generate",
		Short: "print the CDI devices gpuarb.dev/memory=…, or write them to a file",
		Long: `Prints a file for podman, docker, containerd and CRI-O, in the format CDI ` + container.Version + `. With it
    podman run --device gpuarb.dev/memory=4G …
starts a container whose programs have 4 GiB of GPU memory together. There is a device for each of many sizes. For
another size use the device gpuarb.dev/memory=annotation, and name the size in an annotation of the container. With the
device gpuarb.dev/memory=all the container is shown by name, and only the rules limit it. Each container gets the library,
the daemon's socket and a file /etc/ld.so.preload, all read-only. Before the container starts, gpuarb job open --oci opens its job; the container is not
created if that fails.

Engines read /etc/cdi and /var/run/cdi. The file names the paths of this installation and of the socket: write it again
if they change. The daemon need not run for this command. Only containers that root's engine starts can use the
devices; gpuarb run -- podman run … prints the flags for other containers.`,
		Args: argumentCount(0, 0),
		RunE: func(command *cobra.Command, _ []string) error {
			if command.Flags().Changed("output") && filepath.Ext(output) != ".json" {
				return fmt.Errorf("--output %q: engines read files whose name ends in .json, as /etc/cdi/gpuarb.json", output)
			}
			return a.cdiGenerate(output)
		},
	}
	generate.Flags().StringVar(&output, "output", "", "write this file instead, usually /etc/cdi/gpuarb.json; it is replaced as a whole")
	command.AddCommand(generate)
	return command
}

func (a *app) cdiGenerate(output string) error {
	socket := a.systemSocket()
	share, err := a.containerShare(socket)
	if err != nil {
		return &exitError{exitFailed, err}
	}
	command, err := filepath.EvalSymlinks(executable())
	if err != nil {
		return &exitError{exitFailed, err}
	}
	spec, err := container.NewSpec(share, command, socket)
	if err != nil {
		return &exitError{exitFailed, err}
	}
	if output != "" {
		if err := spec.Write(output); err != nil {
			return fail(exitFailed, "the devices cannot be written: %w%s", err, rootAdvice(err))
		}
		return nil
	}
	text, err := spec.Text()
	if err != nil {
		return &exitError{exitFailed, err}
	}
	return a.printf("%s", text)
}

// rootAdvice returns the end of a message about err: what to do if the user may not write the file,
// else nothing.
func rootAdvice(err error) string {
	if errors.Is(err, os.ErrPermission) && os.Getuid() != 0 {
		return "; only root may write there: sudo gpuarb cdi generate --output FILE"
	}
	return ""
}

// systemSocket returns the socket of the system's daemon, unless --socket or GPUARB_SOCKET names
// another one. It does not look for a user's own daemon, because only root may bind a container.
func (a *app) systemSocket() string {
	if a.socket != "" {
		return a.socket
	}
	if path := os.Getenv("GPUARB_SOCKET"); path != "" {
		return path
	}
	return ipc.SystemSocket
}

// containerShare returns the mounts and variables of a container, for this installation and a
// daemon's socket.
func (a *app) containerShare(socket string) (container.Share, error) {
	library, err := a.library()
	if err != nil {
		return container.Share{}, err
	}
	if library, err = filepath.EvalSymlinks(library); err != nil {
		return container.Share{}, err
	}
	return container.NewShare(library, socket)
}

// adviseFlags prints the flags that put the container's programs into the job, before the engine
// starts. It prints nothing if args has all of them, and never changes args. environ is the
// engine's environment, which names the socket.
func (a *app) adviseFlags(environ []string, engine string, args []string) {
	socket, _ := shim.LookupEnv(environ, "GPUARB_SOCKET")
	share, err := a.containerShare(socket)
	if err != nil {
		a.say("%s gives its containers an environment of their own: their programs are not held to any limit; %v", engine, err)
		return
	}
	if missing := share.MissingFlags(args); len(missing) > 0 {
		a.say("%s gives its containers an environment of their own: their programs are not held to this job's limits without these flags of %s run: %s", engine, engine, commandLine(missing...))
	}
}
