package dra

// This file writes the CDI specification of a claim, from which the container runtime learns what a container with the claim gets.

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuarb/gpuarb/kube/share"
)

// kind is the CDI vendor and class of claims' devices. The name of a device is the UID of its claim.
const kind = share.Kind + "claim"

// file returns the path of the CDI specification of a claim.
func (d *Driver) file(claim types.UID) string {
	return filepath.Join(d.Folder, "gpuarb.dev-claim-"+string(claim)+".json")
}

// spare returns the path at which the specification of a claim is written before it gets its name. Runtimes read only files whose name ends
// in .json or .yaml.
func (d *Driver) spare(claim types.UID) string { return d.file(claim) + ".new" }

// spec returns the CDI specification of a claim: the files and variables of the node's specification, and its hooks with the budget b.
func (d *Driver) spec(b budget) (share.Spec, error) {
	node, err := share.ReadSpec(d.Edits)
	if err != nil {
		return share.Spec{}, err
	}
	hooks, err := node.Hooks()
	if err != nil {
		return share.Spec{}, err
	}
	var own share.Edits
	for _, h := range hooks {
		if h.Name == openingHook {
			own.Hooks = append(own.Hooks, b.opening(h)...)
		} else {
			own.Hooks = append(own.Hooks, h)
		}
	}
	return share.Spec{Version: node.Version, Kind: kind, Devices: []share.Device{{Name: string(b.claim), Edits: own}}, Edits: node.Edits}, nil
}

// openingHook is the point of a container's start at which the runtime opens the job: its cgroup exists, and its first process does
// not run yet.
const openingHook = "createRuntime"

// opening returns the hooks that open the job of a container with the budget. hook opens a job without a budget. The first hook opens it
// with the claim's largest size. If the claim has less of another GPU, a further hook lowers the limit there.
func (b *budget) opening(hook share.Hook) []share.Hook {
	var devices []string
	most := uint64(0)
	for _, p := range b.parts {
		devices, most = append(devices, p.gpu), max(most, p.bytes)
	}
	program := hook.Args[:max(slices.Index(hook.Args, "job"), 0)] // gpuarb, and its flags
	hook.Args = slices.Concat(hook.Args, []string{"--memory", decimal(most), "--device", strings.Join(devices, ","), "--name", b.name})
	if b.streams != 0 {
		hook.Args = append(hook.Args, "--streams", decimal(b.streams))
	}
	hooks := []share.Hook{hook}
	for _, p := range b.parts {
		if p.bytes < most {
			hook.Args = slices.Concat(program, []string{"limit", "--job", b.name, "--device", p.gpu, "memory.max=" + decimal(p.bytes)})
			hooks = append(hooks, hook)
		}
	}
	return hooks
}

func decimal(n uint64) string { return strconv.FormatUint(n, 10) }

// write writes the CDI specification of a claim. A kill in between leaves the old file, or none, and a spare file that the next call
// overwrites. The file is written again if its contents are wrong, for example because power was lost.
func (d *Driver) write(claim types.UID, spec share.Spec) error {
	text, err := json.MarshalIndent(spec, "", "  ")
	if err != nil {
		return err
	}
	if is, err := os.ReadFile(d.file(claim)); err == nil && bytes.Equal(is, text) {
		return nil
	}
	if err := os.WriteFile(d.spare(claim), text, 0o644); err != nil {
		return err
	}
	return os.Rename(d.spare(claim), d.file(claim))
}

// remove removes the CDI specification of a claim, if there is one.
func (d *Driver) remove(claim types.UID) error {
	for _, path := range []string{d.spare(claim), d.file(claim)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
