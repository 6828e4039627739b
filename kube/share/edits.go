package share

// This file reads the CDI specification of the node, which `gpuarb cdi generate` wrote. Only that command decides which variables, mounts
// and hooks a container with a budget gets. Packages nri and dra take them from here.

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
)

// Kind is the beginning of the kinds of all CDI devices of gpuarb: the vendor and a slash. A container with such a device already has the
// library, and the hooks that open its job.
const Kind = "gpuarb.dev/"

// Spec is a CDI specification. It has only the fields that gpuarb uses.
type Spec struct {
	Version string   `json:"cdiVersion"`
	Kind    string   `json:"kind"`
	Devices []Device `json:"devices"`
	Edits   Edits    `json:"containerEdits"` // changes to each container that gets any of Devices
}

// Device is a CDI device. A container that gets the device is changed by the Edits here, and by those of the Spec.
type Device struct {
	Name  string `json:"name"`
	Edits Edits  `json:"containerEdits"`
}

// Edits are changes to a container.
type Edits struct {
	Env    []string `json:"env,omitempty"` // NAME=VALUE
	Mounts []Mount  `json:"mounts,omitempty"`
	Hooks  []Hook   `json:"hooks,omitempty"`
}

// Mount is a file or folder of the node that the container sees at another path.
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

// ReadSpec reads the CDI specification that `gpuarb cdi generate` wrote. A file of another vendor, or without mounts, is an error.
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

// sizeless is the name of the device whose hooks open a job without naming a budget. `gpuarb cdi generate` writes it for containers whose
// budget is in an annotation.
const sizeless = "annotation"

// Hooks returns the hooks of the device sizeless. The caller adds a budget to the arguments of the hook that opens the job.
func (s *Spec) Hooks() ([]Hook, error) {
	at := slices.IndexFunc(s.Devices, func(d Device) bool { return d.Name == sizeless })
	if at < 0 || len(s.Devices[at].Edits.Hooks) == 0 {
		return nil, fmt.Errorf("the CDI specification has no device %q with hooks: write it again with `gpuarb cdi generate`", sizeless)
	}
	return s.Devices[at].Edits.Hooks, nil
}
