package doctor

// This file makes the checks of the daemon, the configuration and the devices. shim.go, system.go
// and enabled.go have the other checks.

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/internal/report"
	"github.com/gpuarb/gpuarb/internal/version"
)

// Examine makes all checks, in an order in which each finds the results that it needs.
func (d *Doctor) Examine() []Finding {
	d.checkDaemon()
	d.checkVersions()
	d.checkConfig()
	d.checkHistory()
	d.checkShim()
	d.checkDevices()
	d.checkDriverLimits()
	d.checkQueries()
	d.checkFuse()
	d.checkMounts()
	d.checkLimits()
	d.checkControl()
	return d.findings
}

func (d *Doctor) checkDaemon() {
	ctx, cancel := context.WithTimeout(context.Background(), d.Timeout)
	defer cancel()
	state, socket, err := d.Ask(ctx)
	switch {
	case err != nil && socket == "":
		start := "systemctl status gpuarbd"
		if !d.booted() {
			start = "start gpuarbd as root (nothing but systemd does it by itself, and that does not run here); in a container bind the machine's /run/gpuarb in"
		}
		d.add("daemon", Wrong, start+", or start one of your own with gpuarbd --user", "%v", err)
	case err != nil:
		log := "see its log with journalctl -u gpuarbd"
		if !d.booted() {
			log = "see its log, which it writes to its standard error"
		}
		d.add("daemon", Wrong, log, "%v", err)
	default:
		d.state, d.socket = &state, socket
		d.add("daemon", Fine, "", "answers at %s", socket)
	}
}

// booted reports whether systemd runs this machine.
func (d *Doctor) booted() bool {
	_, err := os.Stat(d.path("/run/systemd/system"))
	return err == nil
}

func (d *Doctor) checkVersions() {
	switch {
	case d.state == nil:
		d.add("version", Unknown, "", "gpuarb is %s; no daemon to compare with", version.Version)
	case d.state.Version != version.Version:
		d.add("version", Note, "restart the older of the two; a restart of the daemon ends no program",
			"gpuarb is %s, the daemon is %s", version.Version, d.state.Version)
	default:
		d.add("version", Fine, "", "gpuarb and the daemon are %s", version.Version)
	}
}

// checkConfig reports mistakes in the configuration files, because of which the files are not in
// force.
func (d *Doctor) checkConfig() {
	if d.state == nil {
		return
	}
	if text, advice := report.ConfigMistakes(d.state.Config); text != "" {
		d.add("config", Wrong, advice, "%s", strings.ReplaceAll(strings.Replace(text, ":\n", ": ", 1), "\n", "; "))
	}
}

// checkHistory reports whether the history of jobs is kept.
func (d *Doctor) checkHistory() {
	if d.state == nil {
		return
	}
	switch h := d.state.History; h.State {
	case figures.HistoryKept:
		d.add("history", Fine, "", "the history of jobs is kept in %s", h.Folder)
	case figures.HistoryNone:
		d.add("history", Fine, "", "no history of jobs is kept (history = \"none\")")
	case figures.HistoryFailing:
		d.add("history", Wrong, "make room on the disk of that folder, or let the user gpuarb-history into it; rows wait in the daemon's memory meanwhile",
			"the history of jobs cannot be written in %s: %s", h.Folder, h.Problem)
	}
}

// checkQueries reports which memory and processes a program sees if it starts in this environment.
func (d *Doctor) checkQueries() {
	if d.Getenv("GPUARB_VIRTUALIZE") == "0" {
		d.add("queries", Note, "unset it where programs size themselves by what is free",
			"GPUARB_VIRTUALIZE=0: programs are told of the whole device and of every process on it; their budgets hold all the same")
		return
	}
	d.add("queries", Fine, "", "a program that asks how much memory the device has is told its budget; where that is less than the device has, nvidia-smi and "+
		"others that it starts list only the processes that share it (GPUARB_VIRTUALIZE=0 shows all)")
}

func (d *Doctor) checkDevices() {
	if d.state == nil {
		d.add("devices", Unknown, "", "only the daemon says which GPUs there are")
		return
	}
	gpus := figures.GPUs(d.state.Devices)
	d.checkProcessor()
	if len(gpus) == 0 {
		d.reportNoGPU()
		return
	}
	for _, device := range d.state.Devices {
		if device.Lost {
			d.add("devices", Wrong, "see dmesg for Xid messages; the machine may need a restart",
				"device %d (%s) fell off the bus", device.Index, device.Name)
			return
		}
		if device.Unresponsive {
			d.add("devices", Wrong, "see dmesg; nvidia-smi will hang as well. Programs on other devices are not affected",
				"device %d (%s) does not answer: its figures are old", device.Index, device.Name)
			return
		}
	}
	for _, device := range gpus {
		if device.Unnamed {
			d.add("figures", Note, "leave room for modules and contexts beside the budgets, by reserve in the configuration",
				"device %d (%s) does not say what a process uses: memory that no call names is charged to nobody", device.Index, device.Name)
		}
	}
	for _, device := range gpus {
		if device.Parent != nil {
			d.add("mig", Note, "", "device %d (%s) is an instance that MIG made of GPU %d: a program sees one instance at a time, NVML does not tell how busy it is, and tells its processes to root alone",
				device.Index, device.Name, *device.Parent)
		}
		if device.TotalFrom == accounting.FromMachine {
			d.add("memory", Note, "write memory = \"…\" into a [[device]] for it", "device %d (%s) does not say how much memory it has: it counts as having %s, half of the machine's",
				device.Index, device.Name, device.Total.Human())
		}
	}
	d.checkIdle(gpus)
	d.add("devices", Fine, "", "%s", report.ListDevices(gpus))
}

// evicts matches the lines of a configuration by which idle jobs make room for others.
var evicts = regexp.MustCompile(`(?m)^\s*evict\.how *= *"(hook|unit)"`)

// checkIdle reports the devices that do not tell how busy processes keep them, if idle jobs make room for others.
func (d *Doctor) checkIdle(gpus []figures.DeviceState) {
	if !evicts.MatchString(d.state.Config.Text) {
		return
	}
	for _, device := range gpus {
		silent := device.Parent != nil || device.Vendor != "nvidia"
		for i := range d.state.Leases {
			l := &d.state.Leases[i]
			silent = silent || l.Device == device.Index && l.State == figures.StateRunning && l.Util == nil && l.AgeSeconds > 10
		}
		if silent {
			d.add("idle", Note, "give jobs that compute for long without such a call a longer evict.idle_after",
				"device %d (%s) does not tell how busy its programs keep it: only calls that gpuarb sees count as use there, so a job may be asked for its memory while it computes",
				device.Index, device.Name)
		}
	}
}

// reportNoGPU reports that the daemon knows no GPU. NVML may find GPUs here that the daemon does
// not find, for example because LD_LIBRARY_PATH is set here.
func (d *Doctor) reportNoGPU() {
	const text = "the daemon knows no GPU on this machine"
	folder := filepath.Dir(d.nvml.path)
	switch {
	case d.nvml.devices == 0:
		d.add("devices", Wrong, "see whether nvidia-smi lists one: the daemon looks for GPUs every three seconds", text)
	case slices.ContainsFunc(filepath.SplitList(d.Getenv("LD_LIBRARY_PATH")), func(path string) bool { return filepath.Clean(path) == folder }):
		d.add("devices", Wrong, "write the folder into a file of /etc/ld.so.conf.d and run ldconfig: the daemon finds the GPUs some seconds later",
			text+", and NVML has %d here, as LD_LIBRARY_PATH leads to %s", d.nvml.devices, folder)
	default:
		d.add("devices", Wrong, "the daemon looks again every three seconds; if this stays so, its log says what is in the way (journalctl -u gpuarbd)", text+", and NVML (%s) has %d here", d.nvml.path, d.nvml.devices)
	}
}

// checkProcessor reports on the processor, if it is a device.
func (d *Doctor) checkProcessor() {
	for _, device := range d.state.Devices {
		if !device.IsGPU() {
			d.add("cpu", Fine, "", "the processor (%s): OpenCL (PoCL) or Vulkan (lavapipe) computes on it, with %s of memory",
				device.Name, device.Total.Human())
		}
	}
}

// checkDriverLimits reports who holds the budgets of cgroups' jobs, and what fails.
func (d *Doctor) checkDriverLimits() {
	if d.state == nil {
		return
	}
	const advice = "docs/admin/second-wall.md says what the kernel or the driver must have; driver_limits = false leaves the budgets to the library"
	off := false
	for _, device := range figures.GPUs(d.state.Devices) {
		switch is := device.DriverLimits; {
		case is == figures.DriverLimitsOff && device.DriverLimitsFail != "":
			d.add("driver", Wrong, "put the limit back yourself, or remove the cgroup", "device %d (%s): a limit of the kernel or the driver is left from before: %s", device.Index, device.Name, device.DriverLimitsFail)
		case device.DriverLimitsFail != "":
			d.add("driver", Wrong, advice, "device %d (%s): budgets of cgroups should be limits of the kernel or the driver, and are not all: %s", device.Index, device.Name, device.DriverLimitsFail)
		case is == figures.DriverLimitsOff:
			off = true
		case is == figures.DriverLimitsKernel || is == figures.DriverLimitsDriver:
			d.add("driver", Fine, "", "device %d (%s): the library holds the budgets of cgroups, and the %s has a limit above each", device.Index, device.Name, is)
		}
	}
	if off {
		d.add("driver", Fine, "", "the library alone holds the budgets of cgroups (driver_limits = false)")
	}
	for i := range d.state.Jobs {
		j := &d.state.Jobs[i]
		for _, on := range j.Devices {
			if on.DriverFail != "" {
				d.add("driver", Wrong, advice, "job %d of cgroup %s on device %d: the library alone holds its budget: %s", j.ID, j.Bound, on.Device, on.DriverFail)
			}
		}
	}
}
