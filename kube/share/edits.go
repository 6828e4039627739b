package share

// This file reads the node's CDI specification, so that `gpuarb cdi generate` alone decides which variables, mounts and hooks a container
// with a budget gets.

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
)

// Kind is the CDI vendor and class of gpuarb's devices. A container with such a device already has the files and the hooks that
// open its job.
const Kind = "gpuarb.dev/"

// Spec is a CDI specification, with the fields that gpuarb uses.
type Spec struct {
	Version string   `json:"cdiVersion"`
	Kind    string   `json:"kind"`
	Devices []Device `json:"devices"`
	Edits   Edits    `json:"containerEdits"` // changes of each container that gets a device
}

// Device is a CDI device.
type Device struct {
	Name  string `json:"name"`
	Edits Edits  `json:"containerEdits"`
}

// Edits are the changes that a device makes to a container.
type Edits struct {
	Env    []string `json:"env,omitempty"`
	Mounts []Mount  `json:"mounts,omitempty"`
	Hooks  []Hook   `json:"hooks,omitempty"`
}

// Mount is a file or folder of the node in the container.
type Mount struct {
	Host      string   `json:"hostPath"`
	Container string   `json:"containerPath"`
	Options   []string `json:"options"`
}

// Hook is a command that the runtime runs on the node, with the container's state on its standard input.
type Hook struct {
	Name    string   `json:"hookName"`
	Path    string   `json:"path"`
	Args    []string `json:"args"` // the first is the program's name
	Env     []string `json:"env"`
	Timeout int      `json:"timeout,omitempty"` // seconds; 0: no limit
}

// ReadSpec reads the CDI specification that `gpuarb cdi generate` wrote.
func ReadSpec(path string) (Spec, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Spec{}, fmt.Errorf("%w: write it with `gpuarb cdi generate --output %s`", err, path)
	}
	var file Spec
	if err := json.Unmarshal(text, &file); err != nil {
		return Spec{}, fmt.Errorf("%s: %w", path, err)
	}
	if !strings.HasPrefix(file.Kind, Kind) || len(file.Edits.Mounts) == 0 {
		return Spec{}, fmt.Errorf("%s is not a file of `gpuarb cdi generate`: its kind is %q, and it has %d mounts", path, file.Kind, len(file.Edits.Mounts))
	}
	return file, nil
}

// sizeless is the device of `gpuarb cdi generate` whose hooks name no budget.
const sizeless = "annotation"

// Hooks returns the hooks of a device whose opening hook names no budget. The caller adds the budget to the hook's arguments.
func (s *Spec) Hooks() ([]Hook, error) {
	at := slices.IndexFunc(s.Devices, func(d Device) bool { return d.Name == sizeless })
	if at < 0 || len(s.Devices[at].Edits.Hooks) == 0 {
		return nil, fmt.Errorf("the CDI specification has no device %q with hooks: write it again with `gpuarb cdi generate`", sizeless)
	}
	return s.Devices[at].Edits.Hooks, nil
}
