package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/procfacts"
	"github.com/gpuarb/gpuarb/version"
	"github.com/spf13/cobra"
)

// verdict is what a check came to.
type verdict string

const (
	fine    verdict = "ok"
	note    verdict = "note"    // worth knowing; nothing is broken
	wrong   verdict = "wrong"   // gpuarb does not do what it should until this is mended
	unknown verdict = "unknown" // cannot be told from here
)

// finding is the outcome of one check.
type finding struct {
	Check   string  `json:"check"`
	Verdict verdict `json:"verdict"`
	Text    string  `json:"text"`
	Advice  orNull  `json:"advice"` // what to do about it
}

// doctor looks at the machine. What it reads lies below root, so that a test can give
// it a machine of its own; programs are always run on the real one.
type doctor struct {
	*app
	root     string
	patience time.Duration // with each thing that may hang
	findings []finding
	socket   string               // of the daemon, once it has answered
	state    *accounting.Snapshot // once the daemon has answered
}

func (a *app) doctorCommand() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use:   "doctor",
		Short: "check this machine, and say what to do about what is wrong",
		Long: "Checks the daemon, its socket, the GPUs, the shim, whether CUDA, NVML, OpenCL and Vulkan are caught, /dev/fuse, the mount, and who uses a GPU outside of gpuarb.\n" +
			"Exits with 0 when nothing is wrong, else with 1.",
		Args: takes(0, 0),
		RunE: func(*cobra.Command, []string) error {
			d := &doctor{app: a, root: "/", patience: 5 * time.Second}
			return d.report(d.examine())
		},
	})
}

// examine makes every check, those that others need first.
func (d *doctor) examine() []finding {
	d.checkDaemon()
	d.checkVersions()
	d.checkDevices()
	d.checkShim()
	d.checkQueries()
	d.checkFuse()
	d.checkMounts()
	d.checkLimits()
	d.checkControl()
	return d.findings
}

func (d *doctor) found(check string, v verdict, advice, format string, args ...any) {
	d.findings = append(d.findings, finding{check, v, fmt.Sprintf(format, args...), orNull(advice)})
}

// path is a path of the machine that is looked at.
func (d *doctor) path(name string) string { return filepath.Join(d.root, name) }

func (d *doctor) processes() procfacts.Root { return procfacts.Root(d.path("/proc")) }

// report prints the findings. The error has the exit code, when something is wrong.
func (d *doctor) report(findings []finding) error {
	var err error
	if d.json {
		err = d.printJSON(findings)
	} else {
		err = d.printFindings(findings)
	}
	for _, f := range findings {
		if err == nil && f.Verdict == wrong {
			err = &exitError{code: exitFailed}
		}
	}
	return err
}

func (d *doctor) printFindings(findings []finding) error {
	for _, f := range findings {
		if _, err := fmt.Fprintf(d.stdout, "%-8s%-9s%s\n", f.Verdict, f.Check, f.Text); err != nil {
			return err
		}
		if f.Advice == "" {
			continue
		}
		if _, err := fmt.Fprintf(d.stdout, "%17s→ %s\n", "", f.Advice); err != nil {
			return err
		}
	}
	return nil
}

func (d *doctor) checkDaemon() {
	ctx, cancel := context.WithTimeout(context.Background(), d.patience)
	defer cancel()
	defer d.slow(theDaemon)()
	client, err := d.connect(ctx)
	if err != nil {
		d.found("daemon", wrong, "systemctl status gpuarbd, or start one of your own with gpuarbd --user", "%v", err)
		return
	}
	defer client.Close()
	snapshot, err := snapshotOf(ctx, client)
	if err != nil {
		d.found("daemon", wrong, "see its log with journalctl -u gpuarbd", "%v", err)
		return
	}
	d.state, d.socket = &snapshot, client.Path()
	d.found("daemon", fine, "", "answers at %s", client.Path())
}

func (d *doctor) checkVersions() {
	switch {
	case d.state == nil:
		d.found("version", unknown, "", "gpuarb is %s; no daemon to compare with", version.Version)
	case d.state.Version != version.Version:
		d.found("version", note, "restart the older of the two; a restart of the daemon ends no program",
			"gpuarb is %s, the daemon is %s", version.Version, d.state.Version)
	default:
		d.found("version", fine, "", "gpuarb and the daemon are %s", version.Version)
	}
}

// checkQueries tells what programs that are started from here see of the device.
func (d *doctor) checkQueries() {
	if d.getenv("GPUARB_VIRTUALIZE") == "0" {
		d.found("queries", note, "unset it where programs size themselves by what is free",
			"GPUARB_VIRTUALIZE=0: programs are told of the whole device and of every process on it; their budgets hold all the same")
		return
	}
	d.found("queries", fine, "", "a program is told of its budget; under one that is below the device's memory, nvidia-smi and its "+
		"kin list those who share it, else every process (GPUARB_VIRTUALIZE=0 shows all)")
}

func (d *doctor) checkDevices() {
	if d.state == nil {
		d.found("devices", unknown, "", "the daemon would know")
		return
	}
	gpus := gpusOf(d.state.Devices)
	d.checkProcessor()
	if len(gpus) == 0 {
		d.found("devices", wrong, "see whether nvidia-smi lists one, then restart gpuarbd",
			"the daemon knows no GPU on this machine")
		return
	}
	for _, device := range d.state.Devices {
		if device.Lost {
			d.found("devices", wrong, "see dmesg for Xid messages; the machine may need a restart",
				"device %d (%s) fell off the bus", device.Index, device.Name)
			return
		}
		if device.Unresponsive {
			d.found("devices", wrong, "see dmesg; nvidia-smi will hang as well. Programs on other devices are not affected",
				"device %d (%s) does not answer: its figures are old", device.Index, device.Name)
			return
		}
	}
	for _, device := range gpus {
		if device.Unnamed {
			d.found("figures", note, "leave room for modules and contexts beside the budgets (reserve)",
				"device %d (%s) does not say what a process uses: memory that no call names is charged to nobody", device.Index, device.Name)
		}
	}
	d.found("devices", fine, "", "%s", listDevices(gpus))
}

// checkProcessor tells of the processor, where it is a device.
func (d *doctor) checkProcessor() {
	for _, device := range d.state.Devices {
		if !device.IsGPU() {
			d.found("cpu", fine, "", "device %d (%s): OpenCL (PoCL) or Vulkan (lavapipe) computes on it, with %s of memory",
				device.Index, device.Name, device.Total.Human())
		}
	}
}
