package figures

import (
	"math"
	"slices"
	"strings"
)

// Stranger is a user who has no process: (uid_t)-1 stands for no user in the kernel's interface.
const Stranger = math.MaxUint32

// WithOwnCommands is the snapshot as a user may see it who is shown the command lines of his own programs alone:
// of the others' he sees the program's name. What it returns shares with s all that is the same.
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
			if u := &d.UnmanagedBy[k]; u.User == "" { // nobody knows whose it is
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

// ProgramOf is the name of a command line's program, without its folder and arguments.
func ProgramOf(command string) string {
	first, _, _ := strings.Cut(strings.TrimLeft(command, " "), " ")
	return first[strings.LastIndexByte(first, '/')+1:]
}
