package container

// This file writes a Share as flags of podman and docker, and finds the flags that a command line
// lacks. `gpuarb run` prints them: an engine starts a container with an environment of its own, so
// that neither the library nor the job of `gpuarb run` reaches it.

import (
	"path/filepath"
	"slices"
	"strings"
)

// engines are the programs whose run and create take these flags.
var engines = []string{"podman", "docker", "nerdctl"}

// commands of engines that a word of a command line may be. The first such word is the command; the
// words before it are options of the engine, and their values.
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

// jobVariable names the job to a program. Engines take its value from their own environment.
const jobVariable = "GPUARB_JOB"

// MissingFlags returns the flags with which a container's programs are in the job of `gpuarb run`,
// without those that args has already. There are none for a container with one of the CDI devices,
// whose job is its own.
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
		if m.to != boundInside { // on loss, a program with the variable of a job is refused in any case
			add("-v", m.from+":"+m.to+":ro")
		}
	}
	for _, variable := range s.env {
		add("-e", variable)
	}
	add("-e", jobVariable)
	return missing
}
