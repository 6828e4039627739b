package main

import (
	"errors"
	"fmt"
	"os/user"
	"slices"
	"strconv"
	"strings"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/report"
)

// limited is whose limits a command names.
type limited struct {
	device string
	job    string
	ofJob  bool
	user   string
	cgroup string
	rule   string
}

// errWhose is for a command that does not say whose limits, or says it twice.
var errWhose = errors.New("whose? Give a PID, --job, --user, --cgroup, --rule or --device")

// resolve looks up what a command names in words.
func (w limited) resolve(s accounting.Snapshot, request *ipc.LimitRequest) error {
	switch request.Target {
	case ipc.LimitJob:
		if request.ID == 0 {
			id, err := jobCalled(s, w.job)
			if err != nil {
				return err
			}
			request.ID = id
		}
	case ipc.LimitUser:
		uid, err := findUser(s, w.user)
		if err != nil {
			return err
		}
		request.ID = uint64(uid)
	case ipc.LimitRule:
		i := slices.IndexFunc(s.Rules, func(r accounting.RuleState) bool { return r.Name == w.rule })
		if i < 0 {
			return &exitError{exitFailed, noRule(s, w.rule)}
		}
		request.ID = s.Rules[i].ID
	}
	if w.device == "" {
		return nil
	}
	found, err := findDevice(s.Devices, w.device)
	if err != nil {
		return fail(exitUnavailable, "--device: %w", err)
	}
	request.Device = uint32(found.Index)
	return nil
}

// findUser is the number of a user: of this machine, or of one whose programs the daemon knows.
func findUser(s accounting.Snapshot, name string) (uint32, error) {
	if uid, err := strconv.ParseUint(name, 10, 32); err == nil {
		return uint32(uid), nil
	}
	if known, err := user.Lookup(name); err == nil {
		if uid, err := strconv.ParseUint(known.Uid, 10, 32); err == nil {
			return uint32(uid), nil
		}
	}
	var users []string
	for _, j := range s.Jobs {
		if j.User == name {
			return j.UID, nil
		}
		if !slices.Contains(users, j.User) {
			users = append(users, j.User)
		}
	}
	if len(users) == 0 {
		return 0, fail(exitFailed, "this machine has no user %s", name)
	}
	slices.Sort(users)
	return 0, fail(exitFailed, "this machine has no user %s; programs of %s use gpuarb now", name, andList(users))
}

// noRule says that there is no rule of a name, and which there are.
func noRule(s accounting.Snapshot, name string) error {
	var names []string
	for _, r := range s.Rules {
		names = append(names, r.Name)
	}
	if len(names) == 0 {
		return fmt.Errorf("the configuration has no rule %s, and no other", name)
	}
	return fmt.Errorf("the configuration has no rule %s; it has %s", name, andList(names))
}

// jobCalled finds the one job that has a name.
func jobCalled(s accounting.Snapshot, name string) (id uint64, err error) {
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
