package main

// This file turns the flags of `gpuarb job open` into an ipc.Binding, the description of a cgroup's job. It is called by job.go.
// The state of a container, which an OCI hook gets, is read in joboci.go.

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/internal/procfacts"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/shim"
	"github.com/spf13/pflag"
)

// bindOptions are the flags of `gpuarb job open`.
type bindOptions struct {
	cgroup   string
	cgroupOf int
	oci      bool
	memory   string
	min      string
	streams  int
	priority int
	device   string
	contexts string
	name     string
	wait     string
	onLoss   string
	until    string
	allow    []string
}

// Annotations of a container that `gpuarb job open --oci` reads.
const (
	annotationMemory = "gpuarb.dev/memory"
	annotationName   = "gpuarb.dev/name"
)

// binding returns the job that the flags describe. It leaves out the devices, whose names cannot be resolved without the daemon.
func (o *bindOptions) binding(flags *pflag.FlagSet) (b ipc.Binding, err error) {
	if err := o.setCgroup(&b); err != nil {
		return b, err
	}
	if o.memory != "" || !o.oci {
		if err := setMemory(&b, o.memory); err != nil {
			return b, fmt.Errorf("--memory: %w", err)
		}
	}
	if o.name != "" {
		b.Name = o.name
	}
	if wrong := ipc.CheckBindingName(ipc.BindingName(b.Name)); wrong != nil {
		return b, fmt.Errorf("--name: %q cannot be a job's name: %w", b.Name, wrong)
	}
	if o.min != "" {
		size, err := accounting.ParseSize(o.min)
		if err != nil {
			return b, fmt.Errorf("--min: %w", err)
		}
		if b.Min, b.MinShare = shim.WireSize(size); size.Max {
			b.Min, b.MinShare = b.Memory, b.MemoryShare
		}
	}
	switch {
	case flags.Changed("streams") && (o.streams < 1 || o.streams > math.MaxInt32):
		return b, fmt.Errorf("--streams: %d is no limit; write a number from 1 to %d", o.streams, math.MaxInt32)
	case o.priority < math.MinInt16 || o.priority > math.MaxInt16:
		return b, fmt.Errorf("--priority: %d is out of range; write a number from %d to %d", o.priority, math.MinInt16, math.MaxInt16)
	case o.contexts != figures.ContextsInside && o.contexts != figures.ContextsOutside:
		return b, fmt.Errorf("--contexts: %q is neither inside nor outside", o.contexts)
	case o.onLoss != figures.LossClosed && o.onLoss != figures.LossOpen:
		return b, fmt.Errorf("--on-loss: %q is neither closed nor open", o.onLoss)
	}
	b.Streams, b.Priority = uint32(o.streams), int32(o.priority)
	if o.contexts == figures.ContextsInside {
		b.Flags |= ipc.BindContextsInside
	}
	if o.onLoss == figures.LossOpen {
		b.Flags |= ipc.BindLossOpen
	}
	if err := o.setAllows(&b); err != nil {
		return b, err
	}
	if err := o.setUntil(&b); err != nil {
		return b, err
	}
	return b, o.setWait(&b)
}

// setMemory sets the budget that text gives. It returns an error if text is empty.
func setMemory(b *ipc.Binding, text string) error {
	if text == "" {
		return errors.New("it is missing: write the budget of all processes together, such as 4G or 25%")
	}
	size, err := accounting.ParseSize(text)
	switch {
	case err != nil:
		return err
	case size == (accounting.Size{}):
		return errors.New("a budget of 0 would let no program use a GPU; write more than 0")
	}
	b.Memory, b.MemoryShare = shim.WireSize(size)
	return nil
}

// setCgroup sets the cgroup, and the name that the job gets if --name is not given.
func (o *bindOptions) setCgroup(b *ipc.Binding) error {
	given := 0
	for _, is := range []bool{o.cgroup != "", o.cgroupOf != 0, o.oci} {
		if is {
			given++
		}
	}
	switch {
	case given != 1:
		return errors.New("give one of --cgroup PATH, --cgroup-of PID and --oci")
	case o.oci:
		return o.fromOCI(b)
	case o.cgroupOf != 0:
		facts, err := procfacts.NewReader().Facts(o.cgroupOf)
		if err != nil {
			return fmt.Errorf("--cgroup-of: %w", err)
		}
		if b.Cgroup = mostSpecific(append([]string{facts.Cgroup}, facts.AlsoIn...)); b.Cgroup == "" {
			return fmt.Errorf("--cgroup-of: process %d is in no cgroup but roots and slices, which hold other programs too: move the process to a cgroup of its own, or name the cgroup with --cgroup", o.cgroupOf)
		}
	default:
		if b.Cgroup = strings.TrimRight(o.cgroup, "/"); b.Cgroup == "" {
			return errRootCgroup
		}
	}
	b.Name = b.Cgroup[strings.LastIndex(b.Cgroup, "/")+1:]
	return nil
}

// errRootCgroup is the error for a flag --cgroup that names the root cgroup.
var errRootCgroup = errors.New("--cgroup: the root cgroup has all programs of the machine in it, and can have no job: name a cgroup below it")

// mostSpecific returns the path that has the most names, without counting names of systemd's slices; the first of several such paths. It
// returns "" if all paths consist of slices or are the root. On a machine with several hierarchies, a process may have the path of its
// service in one hierarchy, and that of its batch job or container in another.
func mostSpecific(paths []string) (best string) {
	most := 0
	for _, path := range paths {
		names := 0
		for name := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
			if name != "" && !strings.HasSuffix(name, ".slice") {
				names++
			}
		}
		if names > most {
			best, most = path, names
		}
	}
	return best
}

// setAllows sets what programs of the job may do besides using its budget.
func (o *bindOptions) setAllows(b *ipc.Binding) error {
	for _, name := range o.allow {
		i := slices.IndexFunc(ipc.BindAllows, func(a ipc.BindAllow) bool { return a.Name == name })
		if i < 0 {
			return fmt.Errorf("--allow: %q is unknown; write a list of claim, reserve, exclusive and priority", name)
		}
		b.Flags |= ipc.BindAllows[i].Flag
	}
	return nil
}

// setUntil sets when the job closes by itself.
func (o *bindOptions) setUntil(b *ipc.Binding) error {
	idle, isIdle := strings.CutPrefix(o.until, figures.UntilIdle)
	switch {
	case o.until == figures.UntilGone:
	case o.until == figures.UntilClosed:
		b.Until = ipc.UntilClosed
	case isIdle:
		limit, err := parseWait(idle)
		if err != nil {
			return fmt.Errorf("--until: %q is no time above 0; write for example idle=90s, idle=10m or idle=2h", o.until)
		}
		b.Until, b.Idle = ipc.UntilIdle, limit
	default:
		return fmt.Errorf("--until: %q is unknown; write gone, closed, or idle and a time, such as idle=10m", o.until)
	}
	return nil
}

// setWait sets how long the open may wait for the reservation.
func (o *bindOptions) setWait(b *ipc.Binding) error {
	switch {
	case o.wait == "":
	case o.oci:
		return errors.New("--wait: a hook must not wait, because the runtime ends it: leave --wait out, and let the engine try again")
	case o.wait == waitMax:
		b.Wait = -1
	default:
		limit, err := parseWait(o.wait)
		if errors.Is(err, errWaitZero) {
			return errors.New("--wait: must be above 0; leave --wait out if the open must not wait")
		} else if err != nil {
			return fmt.Errorf("--wait: %w", err)
		}
		b.Wait = limit
	}
	return nil
}

// devices returns the indices of the devices that --device names; nil: no --device was given. It asks the daemon for the names.
func (o *bindOptions) devices(ctx context.Context, client *ipc.Client) (indices []int, err error) {
	if o.device == "" {
		return nil, nil
	}
	s, err := snapshotOf(ctx, client)
	if err != nil {
		return nil, err
	}
	for name := range strings.SplitSeq(o.device, ",") {
		found, err := findDevice(s.Devices, strings.TrimSpace(name))
		if err != nil {
			return nil, fail(exitUnavailable, "--device: %w", err)
		}
		if !slices.Contains(indices, found.Index) {
			indices = append(indices, found.Index)
		}
	}
	return indices, nil
}

// fromOCI reads the state of a container from stdin. It sets the cgroup, the container's ID, and the name and budget that the annotations
// give. --memory and --name have precedence over annotations.
func (o *bindOptions) fromOCI(b *ipc.Binding) error {
	state, err := readOCIState(os.Stdin)
	if err != nil {
		return fmt.Errorf("--oci: %w", err)
	}
	if state.PID <= 0 {
		return fmt.Errorf("--oci: the state of container %s has no pid: run this command as a createRuntime hook", state.who())
	}
	if b.Cgroup, err = containerCgroup(state.PID); err != nil {
		return fmt.Errorf("--oci: container %s: %w", state.who(), err)
	}
	b.Container, b.Name, b.Memory = state.ID, state.ID, ipc.NoLimit
	if name := state.Annotations[annotationName]; name != "" {
		b.Name = name
		if wrong := ipc.CheckBindingName(ipc.BindingName(name)); wrong != nil {
			return fmt.Errorf("--oci: annotation %s: %q cannot be a job's name: %w", annotationName, ipc.BindingName(name), wrong)
		}
	}
	switch memory := state.Annotations[annotationMemory]; {
	case memory != "" && o.memory == "":
		if err := setMemory(b, memory); err != nil {
			return fmt.Errorf("--oci: annotation %s: %w", annotationMemory, err)
		}
	case o.memory == "":
		return fmt.Errorf("--oci: container %s has no annotation %s: give it one, or pass --memory", state.who(), annotationMemory)
	}
	return nil
}
