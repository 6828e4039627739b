package share

// This file reads the variables and mounts of a container with a budget from the node's CDI specification, so that
// `gpuarb cdi generate` alone decides them.

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// Kind is the CDI vendor and class of gpuarb's devices. A container with such a device already has the files and the hooks that
// open its job.
const Kind = "gpuarb.dev/"

// Edits are the variables and mounts that each container with a budget gets.
type Edits struct {
	Env    []string `json:"env"`
	Mounts []Mount  `json:"mounts"`
}

// Mount is a file or folder of the node in the container.
type Mount struct {
	Host      string   `json:"hostPath"`
	Container string   `json:"containerPath"`
	Options   []string `json:"options"`
}

// ReadEdits reads the edits of all devices from a CDI specification in JSON.
func ReadEdits(path string) (Edits, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Edits{}, fmt.Errorf("%w: write it with `gpuarb cdi generate --output %s`", err, path)
	}
	var file struct {
		Kind  string `json:"kind"`
		Edits Edits  `json:"containerEdits"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return Edits{}, fmt.Errorf("%s: %w", path, err)
	}
	if !strings.HasPrefix(file.Kind, Kind) || len(file.Edits.Mounts) == 0 {
		return Edits{}, fmt.Errorf("%s is not a file of `gpuarb cdi generate`: its kind is %q, and it has %d mounts", path, file.Kind, len(file.Edits.Mounts))
	}
	return file.Edits, nil
}
