package doctor

// This file checks which programs run under gpuarb, and which programs use a GPU without it.
// Package preload knows what is enabled.

import (
	"slices"
	"strings"

	"github.com/gpuarb/gpuarb/cmd/gpuarb/preload"
)

// checkControl reports which programs are put under gpuarb, and which use a GPU without it.
func (d *Doctor) checkControl() {
	machine := preload.Machine{Root: d.Root, Timeout: d.Timeout}
	entries, err := machine.Entries()
	if err != nil {
		d.add("control", Unknown, "", "what is enabled cannot be read: %v", err)
		return
	}
	machine.Count(entries)
	for _, e := range entries {
		verdict, advice := Fine, ""
		if e.Known && e.Kind == preload.Unit && e.Loaded < e.Running {
			verdict, advice = Note, "systemctl restart "+e.Name
		}
		d.add("control", verdict, advice, "%v: under gpuarb: %s", e.Target, e.State())
	}
	if len(entries) == 0 {
		d.add("control", Note, "to have a service, a user, a group or everybody under gpuarb for good: gpuarb help enable",
			"only programs under gpuarb run are held to limits: nothing else is enabled")
	}
	d.checkUnmanaged(entries)
}

// checkUnmanaged reports the programs that use a GPU without the library, and how to put each under
// gpuarb.
func (d *Doctor) checkUnmanaged(entries []preload.Entry) {
	if d.state == nil {
		return
	}
	for device, u := range d.state.Unmanaged() {
		who, advice := "", "start it with gpuarb run"
		if u.User != "" {
			who, advice = u.User+"'s ", advice+", or put the user's sessions under gpuarb: gpuarb enable --user "+u.User
		}
		if unit := d.processes().Unit(u.PID); strings.HasSuffix(unit, ".service") {
			who, advice = unit+": ", "gpuarb enable --unit "+unit
			if slices.ContainsFunc(entries, func(e preload.Entry) bool { return e.Kind == preload.Unit && e.Name == unit }) {
				advice = "it is enabled: systemctl restart " + unit
			}
		}
		d.add("control", Note, advice, "%s%s[%d] holds %s of GPU %d and is not under gpuarb", who, u.Command, u.PID, u.Bytes.Human(), device.Index)
	}
}
