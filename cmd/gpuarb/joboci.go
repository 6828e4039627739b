package main

// This file reads the state of a container that an OCI runtime gives its hooks on stdin, and finds the
// container's cgroup. job.go and jobbinding.go call it.

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/internal/procfacts"
)

// ociState is the part of a container's state that gpuarb reads, as the OCI runtime specification has it.
type ociState struct {
	ID          string            `json:"id"`
	PID         int               `json:"pid"`
	Annotations map[string]string `json:"annotations"`
}

// maxOCIState is the most bytes of a state that are read.
const maxOCIState = 1 << 20

func readOCIState(from io.Reader) (state ociState, err error) {
	text, err := io.ReadAll(io.LimitReader(from, maxOCIState+1))
	switch {
	case err != nil:
		return state, err
	case len(text) > maxOCIState:
		return state, fmt.Errorf("the state on stdin has more than %d bytes", maxOCIState)
	}
	if err := json.Unmarshal(text, &state); err != nil {
		return state, fmt.Errorf("stdin has no state of a container, as an OCI runtime gives its hooks: %w", err)
	}
	if state.ID == "" {
		return state, errors.New("the state on stdin has no id")
	}
	return state, nil
}

// containerCgroup returns the cgroup of a container's first process. It refuses a cgroup in which this hook runs too,
// because the runtime and the user's other programs would be in the job.
func containerCgroup(pid int) (string, error) {
	facts, err := procfacts.NewReader().Facts(pid)
	if err != nil {
		return "", err
	}
	own, err := procfacts.Here.Cgroups(os.Getpid())
	if err != nil {
		return "", err
	}
	for _, at := range append([]string{facts.Cgroup}, facts.AlsoIn...) {
		if at != "/" && !slices.ContainsFunc(own, func(mine string) bool { return accounting.InCgroup(mine, at) }) {
			return at, nil
		}
	}
	return "", errors.New("it runs in the cgroup of its runtime, as rootless containers without a cgroup manager do: a job there would hold " +
		"the runtime too. Start it with a cgroup of its own (as root, or with systemd as the cgroup manager), or start the engine by " +
		"`gpuarb run -- podman run …` and pass the flags that it prints")
}
