package main

// This file reads the state of a container that an OCI runtime gives its hooks on stdin, and finds the
// container's cgroup. job.go and jobbinding.go call it.

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/internal/procfacts"
	"github.com/gpuarb/gpuarb/ipc"
)

// ociState is the part of a container's state that gpuarb reads, as the OCI runtime specification has it.
type ociState struct {
	ID          string            `json:"id"`
	PID         int               `json:"pid"`
	Annotations map[string]string `json:"annotations"`
}

// maxOCIState is the most bytes of a state that are read.
const maxOCIState = 1 << 20

// longestOCIReason bounds what an error repeats of a malformed state, in bytes: engines print the error, and log it.
const longestOCIReason = 300

// readOCIState returns the state that stdin has. It reads for daemonTimeout at most: a stdin that stays open, such as
// a terminal, must not make a hook wait.
func readOCIState(stdin io.Reader) (state ociState, err error) {
	var text []byte
	read := make(chan error, 1)
	go func() {
		all, err := io.ReadAll(io.LimitReader(stdin, maxOCIState+1))
		text = all
		read <- err
	}()
	select {
	case err = <-read:
	case <-time.After(daemonTimeout):
		return state, fmt.Errorf("stdin did not end within %s: an OCI runtime writes the state of a container there, and closes it", daemonTimeout)
	}
	switch {
	case err != nil:
		return state, err
	case len(text) > maxOCIState:
		return state, fmt.Errorf("the state on stdin has more than %d bytes", maxOCIState)
	}
	if err := json.Unmarshal(text, &state); err != nil {
		reason := err.Error()
		if len(reason) > longestOCIReason {
			reason = strings.ToValidUTF8(reason[:longestOCIReason], "") + "…"
		}
		return state, fmt.Errorf("stdin has no state of a container, as an OCI runtime gives its hooks: %s", reason)
	}
	if state.ID == "" {
		return state, errors.New("the state on stdin has no id")
	}
	return state, nil
}

// who returns the container's id as messages have it: short enough for a line.
func (s ociState) who() string { return ipc.BindingName(s.ID) }

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
