package doctor

import (
	"slices"
	"strings"

	"github.com/gpuarb/gpuarb/preload"
)

// checkControl says which programs are put under gpuarb, and who uses a GPU without it.
func (d *Doctor) checkControl() {
	machine := preload.Machine{Root: d.Root, Patience: d.Patience}
	entries, err := machine.Entries()
	if err != nil {
		d.found("control", Unknown, "", "what is enabled cannot be read: %v", err)
		return
	}
	machine.Count(entries)
	for _, e := range entries {
		verdict, advice := Fine, ""
		if e.Known && e.Kind == preload.Unit && e.Held < e.Running {
			verdict, advice = Note, "systemctl restart "+e.Name
		}
		d.found("control", verdict, advice, "%v: under gpuarb: %s", e.Target, e.State())
	}
	if len(entries) == 0 {
		d.found("control", Note, "to have a service, a user, a group or everybody under gpuarb for good: gpuarb help enable",
			"only programs under gpuarb run are held to limits: nothing else is enabled")
	}
	d.checkUnmanaged(entries)
}

// checkUnmanaged names who uses a GPU without the library, and what would put it under gpuarb.
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
		d.found("control", Note, advice, "%s%s[%d] holds %s of GPU %d and is not under gpuarb", who, u.Command, u.PID, u.Bytes.Human(), device.Index)
	}
}
