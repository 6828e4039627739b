package container

// This file writes a Share as flags of podman and docker, and finds the flags that a command line
// lacks. `gpuarb run` prints them: an engine starts a container with an environment of its own, so
// that neither the library nor the job of `gpuarb run` reaches it.

import (
	"path/filepath"
	"slices"
	"strings"
)

// engines are the programs whose subcommands run and create accept the flags.
var engines = []string{"podman", "docker", "nerdctl"}

// commands are the subcommands of engines. The first word of a command line that is in the list is
// taken as its subcommand. The words before it are options of the engine and their values.
var commands = []string{"attach", "build", "commit", "compose", "cp", "create", "exec", "export", "image", "images", "import", "info", "inspect", "kill", "load",
	"login", "logs", "network", "pause", "play", "pod", "ps", "pull", "push", "restart", "rm", "rmi", "run", "save", "start", "stats", "stop", "system",
	"tag", "top", "unpause", "unshare", "update", "version", "volume", "wait"}

// StartsContainer reports whether a command line starts or creates a container.
func StartsContainer(args []string) bool {
	if len(args) == 0 || !slices.Contains(engines, filepath.Base(args[0])) {
		return false
	}
	at := slices.IndexFunc(args, func(word string) bool { return slices.Contains(commands, word) })
	return at > 0 && (args[at] == "run" || args[at] == "create")
}

// jobVariable is the variable that tells a program its job. The flag `-e GPUARB_JOB` has no value:
// the engine passes the value of its own environment.
const jobVariable = "GPUARB_JOB"

// MissingFlags returns the flags that put a container's programs into the job of `gpuarb run`,
// without those that args has. It returns none if args has a CDI device of gpuarb: such a container
// has a job of its own.
func (s Share) MissingFlags(args []string) []string {
	if slices.ContainsFunc(args, func(word string) bool { return strings.Contains(word, Kind+"=") }) {
		return nil
	}
	line := strings.Join(args, " ") + " "
	var missing []string
	add := func(flag, value string) {
		if !strings.Contains(line, value+" ") {
			missing = append(missing, flag, value)
		}
	}
	for _, m := range s.mounts {
		if m.to != boundInside { // no marker: without a daemon, GPUARB_JOB alone keeps a program from memory
			add("-v", m.from+":"+m.to+":ro")
		}
	}
	for _, variable := range s.env {
		add("-e", variable)
	}
	add("-e", jobVariable)
	return missing
}
