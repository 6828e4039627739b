package main

// This file owns the kinds of targets that have limits (a process, a job, a user, a cgroup, a rule,
// a device), and finds a target by its name. limit.go and topdaemon.go use it.

import (
	"context"
	"fmt"
	"os/user"
	"slices"
	"strconv"
	"strings"

	"github.com/gpuarb/gpuarb/internal/config"
	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/internal/report"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/spf13/cobra"
)

// limitKind is a kind of target whose limits can be shown and changed.
type limitKind struct {
	kind        uint32 // kind in the protocol
	flag, usage string // flag that names a target; "": an argument does
	noun        string
	limits      []string // limits that the target has
	// holds is the beginning of the message about a target that holds more than its limit: "process %s
	// holds".
	holds string
	// offers returns the targets that the completion of the flag offers; nil: none.
	offers func(figures.Snapshot) []cobra.Completion
	// find finds a target by name; nil: names are not looked up.
	find func(s figures.Snapshot, name string) (id uint64, err error)
	// inForce returns the limits in force; ok is false if the target does not exist.
	inForce func(s figures.Snapshot, id uint64, name string) (limits []report.Limit, ok bool)
	// unknown returns the error if inForce returns false.
	unknown func(s figures.Snapshot, id uint64, name string) error
}

// The limits of a single program, and of several programs together.
var (
	ofOne  = []string{"memory.max", "memory.min", "streams.max"}
	ofMany = []string{"memory.max", "streams.max"}
)

var limitKinds = []limitKind{
	{
		kind: ipc.LimitProcess, noun: "a process or job", limits: ofOne, holds: "process %s holds",
		inForce: func(s figures.Snapshot, id uint64, _ string) ([]report.Limit, bool) {
			return report.ProcessLimits(s, int(id))
		},
		unknown: func(_ figures.Snapshot, id uint64, _ string) error {
			return fmt.Errorf("process %d does not use gpuarb (any more); `gpuarb ps` lists those that do", id)
		},
	},
	{
		kind: ipc.LimitJob, flag: "job", usage: "the job, by the number that gpuarb jobs shows, or by its name (gpuarb run --name)",
		noun: "a process or job", limits: ofOne, holds: "job %s holds", offers: offerJobs, find: jobCalled,
		inForce: func(s figures.Snapshot, id uint64, _ string) ([]report.Limit, bool) {
			return report.JobLimits(s, id)
		},
		unknown: func(_ figures.Snapshot, id uint64, _ string) error {
			return fmt.Errorf("there is no job %d (any more); `gpuarb jobs` lists them", id)
		},
	},
	{
		kind: ipc.LimitUser, flag: "user", usage: "all programs of a user together, by name or number",
		noun: "a user", limits: ofMany, holds: "%s's programs hold", offers: offerUsers, find: findUser,
		inForce: func(s figures.Snapshot, id uint64, _ string) ([]report.Limit, bool) {
			return report.UserLimits(s, uint32(id)), true
		},
	},
	{
		kind: ipc.LimitCgroup, flag: "cgroup", usage: "all programs in a cgroup, and in those below it, by its path in any hierarchy, as /proc/PID/cgroup has it",
		noun: "a cgroup", limits: []string{"memory.max"}, holds: "the programs in cgroup %s hold", offers: offerCgroups,
		inForce: func(s figures.Snapshot, _ uint64, path string) ([]report.Limit, bool) {
			return report.CgroupLimits(s, path), true
		},
	},
	{
		kind: ipc.LimitRule, flag: "rule", usage: "a rule of the configuration, by its name, or its place where it has none",
		noun: "a rule", limits: ofMany, holds: "programs under rule %s hold", offers: offerRules, find: ruleCalled,
		inForce: func(s figures.Snapshot, id uint64, _ string) ([]report.Limit, bool) {
			return report.RuleLimits(s, id)
		},
		unknown: func(s figures.Snapshot, _ uint64, name string) error { return noRule(s, name) },
	},
	{
		kind: ipc.LimitDevice, flag: "device", usage: "the device: index, UUID, beginning of a UUID, or PCI address",
		noun: "a device", limits: []string{"slots.max"},
		inForce: func(s figures.Snapshot, _ uint64, _ string) ([]report.Limit, bool) {
			return report.DeviceLimits(s), true
		},
	},
}

func limitKindOf(kind uint32) *limitKind {
	return &limitKinds[slices.IndexFunc(limitKinds, func(t limitKind) bool { return t.kind == kind })]
}

// limitTarget is the target that a command line names, and the request that changes its limits.
type limitTarget struct {
	*limitKind
	name    string // value of the flag
	device  string // value of --device, which goes with every kind
	request ipc.LimitRequest
	dryRun  bool // change nothing, and say who would be over
}

// resolve looks up the names that the command line has.
func (w *limitTarget) resolve(ctx context.Context, client *ipc.Client) error {
	find := w.find != nil && w.request.ID == 0
	if w.device == "" && !find {
		return nil
	}
	s, err := snapshotOf(ctx, client)
	if err == nil && find {
		w.request.ID, err = w.find(s, w.name)
	}
	if err != nil || w.device == "" {
		return err
	}
	found, err := findDevice(s.Devices, w.device)
	if err != nil {
		return fail(exitUnavailable, "--device: %w", err)
	}
	w.request.Device = uint32(found.Index)
	return nil
}

// currentLimits returns the limits in force.
func (w *limitTarget) currentLimits(ctx context.Context, client *ipc.Client) (s figures.Snapshot, limits []report.Limit, err error) {
	if s, err = snapshotOf(ctx, client); err != nil {
		return s, nil, err
	}
	limits, ok := w.inForce(s, w.request.ID, w.name)
	if !ok {
		return s, nil, &exitError{exitFailed, w.unknown(s, w.request.ID, w.name)}
	}
	return s, slices.DeleteFunc(limits, func(l report.Limit) bool {
		return w.request.Device != ipc.AllDevices && uint32(l.Device) != w.request.Device
	}), nil
}

// ruleCalled returns the ID of the rule with the name.
func ruleCalled(s figures.Snapshot, name string) (uint64, error) {
	i := slices.IndexFunc(s.Rules, func(r figures.RuleState) bool { return r.Name == name })
	if i < 0 {
		return 0, &exitError{exitFailed, noRule(s, name)}
	}
	return s.Rules[i].ID, nil
}

// findUser returns the ID of a user, whom this machine or the daemon knows.
func findUser(s figures.Snapshot, name string) (uint64, error) {
	if uid, err := strconv.ParseUint(name, 10, 32); err == nil {
		return uid, nil
	}
	if known, err := user.Lookup(name); err == nil {
		if uid, err := strconv.ParseUint(known.Uid, 10, 32); err == nil {
			return uid, nil
		}
	}
	var users []string
	for _, j := range s.Jobs {
		if j.User == name {
			return uint64(j.UID), nil
		}
		if !slices.Contains(users, j.User) {
			users = append(users, j.User)
		}
	}
	if len(users) == 0 {
		return 0, fail(exitFailed, "this machine has no user %s", name)
	}
	slices.Sort(users)
	return 0, fail(exitFailed, "this machine has no user %s; programs of %s use gpuarb now", name, config.AndList(users))
}

// noRule returns an error that says which rules exist.
func noRule(s figures.Snapshot, name string) error {
	var names []string
	for _, r := range s.Rules {
		names = append(names, r.Name)
	}
	if len(names) == 0 {
		return fmt.Errorf("the configuration has no rule %s, and no other", name)
	}
	return fmt.Errorf("the configuration has no rule %s; it has %s", name, config.AndList(names))
}

// jobCalled returns the ID of the job with the name. It fails if several jobs have the name.
func jobCalled(s figures.Snapshot, name string) (id uint64, err error) {
	var found []string
	for _, j := range s.Jobs {
		if j.Name == name {
			id = j.ID
			found = append(found, fmt.Sprintf("%d (%s's %s)", j.ID, report.Escape(j.User), report.Escape(j.Command)))
		}
	}
	switch len(found) {
	case 0:
		return 0, fail(exitFailed, "no job is called %q (any more); `gpuarb jobs` shows those that there are", name)
	case 1:
		return id, nil
	}
	return 0, fail(exitFailed, "%d jobs are called %q: %s; give the number", len(found), name, strings.Join(found, ", "))
}
