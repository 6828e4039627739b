package container

// This file writes a Share as a CDI specification: a JSON file from which podman, docker,
// containerd and CRI-O learn what a container gets with `--device gpuarb.dev/memory=4G`.

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Version names the CDI format: the lowest that has all fields used here, because an engine refuses
// a file of a version that it does not know.
const Version = "0.5.0"

// Kind is the vendor and class of the devices.
const Kind = "gpuarb.dev/memory"

// Devices without a size of their own.
const (
	annotation = "annotation" // the container's annotations name the size
	all        = "all"        // no limit but those of the rules
)

// sizes are the budgets that have a device. A container with another budget uses the device annotation.
var sizes = []string{
	"64M", "128M", "256M", "512M", "1G", "2G", "3G", "4G", "5G", "6G", "7G", "8G", "10G", "12G", "14G", "16G",
	"20G", "24G", "28G", "32G", "40G", "48G", "64G", "80G", "96G", "128G", "160G", "192G",
}

// Spec is the file's top level, with the fields of CDI 0.5.0 that are used.
type Spec struct {
	Version string   `json:"cdiVersion"`
	Kind    string   `json:"kind"`
	Devices []device `json:"devices"`
	Edits   edits    `json:"containerEdits"` // of each container that gets a device
}

type device struct {
	Name  string `json:"name"`
	Edits edits  `json:"containerEdits"`
}

type edits struct {
	Env    []string   `json:"env,omitempty"`
	Mounts []cdiMount `json:"mounts,omitempty"`
	Hooks  []hook     `json:"hooks,omitempty"`
}

type cdiMount struct {
	Host      string   `json:"hostPath"`
	Container string   `json:"containerPath"`
	Options   []string `json:"options"`
}

// hook is a command that the runtime runs on the machine, with the container's state on its
// standard input.
type hook struct {
	Name    string   `json:"hookName"`
	Path    string   `json:"path"`
	Args    []string `json:"args"`    // the first is the program's name
	Env     []string `json:"env"`     // the whole environment; if it is empty, runc passes its own
	Timeout int      `json:"timeout"` // seconds
}

// hookTimeout is the time after which the runtime kills a hook, in seconds. A hook does not wait for
// memory. If the daemon hangs, the hook fails after 10 s with the reason, before the runtime kills it.
const hookTimeout = 15

// untilIdle is the condition (--until) by which the daemon closes a job without a closing hook: its
// cgroup has been empty for 10 s. If the engine's monitor is killed, the engine runs no closing hook
// and leaves the empty cgroup behind.
const untilIdle = "idle=10s"

// NewSpec returns the specification of a share. command is the absolute path of gpuarb, and socket
// that of the daemon's socket on the machine.
func NewSpec(share Share, command, socket string) (Spec, error) {
	spec := Spec{Version: Version, Kind: Kind, Edits: edits{Env: share.env}}
	for _, m := range share.mounts {
		spec.Edits.Mounts = append(spec.Edits.Mounts, cdiMount{m.from, m.to, m.options()})
	}
	call := func(name, verb string, flags ...string) hook {
		args := append([]string{"gpuarb", "--socket", socket, "job", verb, "--oci"}, flags...)
		return hook{Name: name, Path: command, Args: args, Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}, Timeout: hookTimeout}
	}
	add := func(name string, flags ...string) {
		spec.Devices = append(spec.Devices, device{name, edits{Hooks: []hook{call("createRuntime", "open", flags...), call("poststop", "close")}}})
	}
	for _, size := range sizes {
		add(size, "--memory", size, "--until", untilIdle)
	}
	add(annotation, "--until", untilIdle)
	add(all, "--memory", "max", "--until", untilIdle)
	return spec, spec.check()
}

// options returns the options of a mount, named as OCI runtimes name them.
func (m mount) options() []string {
	options := []string{"ro", "nosuid", "nodev"}
	if !m.programs {
		options = append(options, "noexec")
	}
	if m.folder {
		return append(options, "rbind")
	}
	return append(options, "bind")
}

// deviceName matches the device names that CDI 0.5.0 allows.
var deviceName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?$`)

// check returns an error about the first device name or path that an engine would refuse or would
// read as another one.
func (s Spec) check() error {
	for _, d := range s.Devices {
		if !deviceName.MatchString(d.Name) {
			return fmt.Errorf("%q is not a valid name of a CDI device", d.Name)
		}
		for _, h := range d.Edits.Hooks {
			if err := checkPath(h.Path); err != nil {
				return err
			}
		}
	}
	for _, m := range s.Edits.Mounts {
		if err := checkPath(m.Host); err != nil {
			return err
		}
	}
	return nil
}

// checkPath returns an error if a path of the machine is not absolute and clean.
func checkPath(path string) error {
	if !filepath.IsAbs(path) || filepath.Clean(path) != path || strings.ContainsAny(path, "\x00\n") {
		return fmt.Errorf("%q is no absolute, clean path, which engines need", path)
	}
	return nil
}

// Text returns the specification as JSON.
func (s Spec) Text() ([]byte, error) {
	text, err := json.MarshalIndent(s, "", "  ")
	return append(text, '\n'), err
}

// Write writes the specification to a file. The file is replaced by a rename, so that an engine
// reads the old text or the new one, never a part.
func (s Spec) Write(path string) error {
	text, err := s.Text()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(path), ".gpuarb-") // engines read only *.json and *.yaml
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err == nil {
		err = file.Chmod(0o644)
	}
	if err == nil {
		err = file.Sync()
	}
	if closing := file.Close(); err == nil {
		err = closing
	}
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		_ = os.Remove(file.Name())
	}
	return err
}
