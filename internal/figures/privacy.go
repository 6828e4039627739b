package figures

// This file hides command lines of other users. The daemon and the
// filesystem call it if commands in [privacy] is "own".

import (
	"math"
	"slices"
	"strings"
)

// Stranger is the UID of a user without processes. (uid_t)-1 stands for no user in the kernel's
// interface.
const Stranger = math.MaxUint32

// WithOwnCommands returns the snapshot for a user who may see only the command lines of the user's
// own programs. Of other programs the user sees only the name. The result shares unchanged data
// with s.
func (s Snapshot) WithOwnCommands(uid uint32) Snapshot {
	hide := func(owner uint32, command *string) {
		if owner != uid {
			*command = ProgramOf(*command)
		}
	}
	s.Devices = slices.Clone(s.Devices)
	for i := range s.Devices {
		d := &s.Devices[i]
		d.Holders, d.UnmanagedBy = slices.Clone(d.Holders), slices.Clone(d.UnmanagedBy)
		for k := range d.Holders {
			hide(d.Holders[k].UID, &d.Holders[k].Command)
		}
		for k := range d.UnmanagedBy {
			if u := &d.UnmanagedBy[k]; u.User == "" { // the owner is not known
				u.Command = ProgramOf(u.Command)
			} else {
				hide(u.UID, &u.Command)
			}
		}
	}
	s.Leases, s.Processes, s.Jobs, s.Queue = slices.Clone(s.Leases), slices.Clone(s.Processes), slices.Clone(s.Jobs), slices.Clone(s.Queue)
	for i := range s.Leases {
		hide(s.Leases[i].UID, &s.Leases[i].Command)
	}
	for i := range s.Processes {
		hide(s.Processes[i].UID, &s.Processes[i].Command)
	}
	for i := range s.Jobs {
		hide(s.Jobs[i].UID, &s.Jobs[i].Command)
	}
	for i := range s.Queue {
		hide(s.Queue[i].UID, &s.Queue[i].Command)
	}
	return s
}

// ProgramOf returns the name of a program without its folder and arguments.
func ProgramOf(command string) string {
	first, _, _ := strings.Cut(strings.TrimLeft(command, " "), " ")
	return first[strings.LastIndexByte(first, '/')+1:]
}
