package dra

// This file writes and removes the CDI specification of a claim. The container runtime reads it, and gives the container the library,
// the variables and the hooks that the specification lists. claim.go computes the budget in the hooks.

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

// kind is the CDI vendor and class of the devices for claims. Each claim has one device, whose name is the claim's UID.
const kind = share.Kind + "claim"

// file returns the path of the CDI specification of a claim.
func (d *Driver) file(claim types.UID) string {
	return filepath.Join(d.Folder, "gpuarb.dev-claim-"+string(claim)+".json")
}

// spare returns the path at which write creates the specification of a claim, before it renames the file to file(claim). Runtimes ignore
// the spare file, because they read only files whose names end in .json or .yaml.
func (d *Driver) spare(claim types.UID) string { return d.file(claim) + ".new" }

// spec returns the CDI specification of the claim with the budget b. It has the mounts and variables of the node's own specification, and
// that specification's hooks. The hooks that open the job get the budget as arguments.
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

// openingHook is the name of the hook that opens the job. The runtime runs it when the container's cgroup exists, before the container's
// first process runs.
const openingHook = "createRuntime"

// opening returns the hooks that open the job of a container with the budget b. hook is the node's hook, which opens a job without a
// budget. The first returned hook opens the job on all GPUs of the claim, with the largest budget of one of them. For each GPU on which
// the claim has less, a further hook runs after the first and lowers the limit of the job there.
func (b *budget) opening(hook share.Hook) []share.Hook {
	var devices []string
	most := uint64(0)
	for _, p := range b.parts {
		devices, most = append(devices, p.gpu), max(most, p.bytes)
	}
	program := hook.Args[:max(slices.Index(hook.Args, "job"), 0)] // the program's name and its flags, which stand before the command "job"
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

// write writes the CDI specification of a claim, first at the spare path, and then renames it. A kill before the rename leaves the old file
// or no file, and a spare file that the next call overwrites. A file with the right contents is left as it is. A file with other contents,
// for example after a loss of power, is written again.
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

// remove removes the CDI specification of a claim, and its spare file. A missing file is not an error.
func (d *Driver) remove(claim types.UID) error {
	for _, path := range []string{d.spare(claim), d.file(claim)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
