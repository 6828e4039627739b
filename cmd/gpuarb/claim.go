package main

// This file has `gpuarb claim`: a device for a shell, or for a command (--exec), and its release.
// claimkeeper.go has the background process that holds the claim of a shell. jobrequest.go has the
// flags that claim shares with run.

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/shim"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// claimOptions are the flags of claim: those that run has too, and its own.
type claimOptions struct {
	jobOptions
	try        bool
	onlyIfNone bool
	exec       bool
	release    bool
	index      bool
	holder     int // --for
}

func (a *app) claimCommand() *cobra.Command {
	var options claimOptions
	command := a.jsonFlag(&cobra.Command{
		Use:   "claim [flags] [--exec COMMAND [ARGUMENT…]]",
		Short: "take a device that is free, or wait for one in order of arrival",
		Long: `Takes a device for this shell, and prints the variables that make programs use it:

  eval "$(gpuarb claim)"             claims a device until this shell ends,
  eval "$(gpuarb claim --release)"   or until this command

A background process holds the claim until this shell ends (a subshell counts as its
shell), or the process that --for names. Programs that still run then keep the device
until they end. With --exec the claim lasts as long as COMMAND, which gets the
variables; nothing is printed.

The exit code is 0, 1 when it failed, 2 for usage, 69 when there is no device or no
daemon, 75 when none is free and waiting is ruled out, 124 when the wait timed out, 128+n
when signal n ended the wait; with --exec COMMAND's own, 126 and 127 as with run.`,
		RunE: func(command *cobra.Command, args []string) error {
			if err := a.claim(command.Flags(), &options, args); err != nil {
				return withCode(err, exitFailed)
			}
			return nil
		},
	})
	flags := command.Flags()
	flags.SetInterspersed(false)
	options.addTo(flags)
	flags.StringVar(&options.device, "device", anyDevice, "which: any, nvidia, amd, intel, or a device; with a list, as 0,1, all of them")
	flags.BoolVar(&options.try, "try", false, "fail with 75 rather than wait")
	flags.BoolVar(&options.noWait, "no-wait", false, "the same as --try")
	flags.BoolVar(&options.onlyIfNone, "only-if-none", false, "fail with 75 when you have a claim already")
	flags.BoolVar(&options.exec, "exec", false, "run the command that follows, and end the claim when it ends")
	flags.IntVar(&options.holder, "for", 0, "the claim lasts as long as the process with this PID")
	flags.BoolVar(&options.release, "release", false, "end this shell's claim, or the one whose number follows (GPUARB_CLAIM)")
	flags.BoolVar(&options.index, "index", false, "print the device's index alone")
	a.completeDevices(command)
	return command
}

func (a *app) claim(flags *pflag.FlagSet, options *claimOptions, args []string) error {
	switch {
	case options.release:
		return a.releaseClaim(args)
	case options.exec && len(args) == 0:
		return fail(exitUsage, "no program to run was given: gpuarb claim --exec COMMAND")
	case !options.exec && len(args) > 0:
		return fail(exitUsage, "unexpected argument %q; to run a program, put --exec before it", args[0])
	case flags.Changed("for") && (options.holder < 1 || options.holder > math.MaxInt32):
		return fail(exitUsage, "--for: %d is no PID; write a number from 1", options.holder)
	}
	if held := a.ownClaim(); held != 0 {
		code := exitFailed
		if options.onlyIfNone {
			code = exitBusy
		}
		return fail(code, "this shell has claim %d already; eval \"$(gpuarb claim --release)\" ends it", held)
	}
	if _, inside := a.enclosingJob(); inside {
		return fail(exitFailed, "this is inside the job of a `gpuarb run`, whose budget, slot and devices its programs share; "+
			"give --device any to that one, or leave its job: env -u GPUARB_JOB gpuarb claim …")
	}
	options.noWait = options.noWait || options.try
	request, size, err := options.request(flags)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	request.Flags |= ipc.JobClaim
	if options.onlyIfNone {
		request.Flags |= ipc.JobOnlyIfNone
	}
	library, err := a.library()
	if err != nil {
		return err
	}
	client, err := a.prepare(&request, &options.jobOptions, size)
	if err != nil {
		return err
	}
	defer client.Close()
	if options.exec {
		return a.claimForCommand(library, client.Path(), request, args)
	}
	if options.holder == 0 {
		if err := a.refuseSecondClaim(client.Path(), options, &request); err != nil {
			return err
		}
	}
	return a.claimForShell(options, library, client.Path(), request)
}

// refuseSecondClaim returns an error if the shell has a claim already and did not take its
// variables, because a second claim would wait for the first. With --index or --json a shell may
// have several claims, unless the new one could only get devices that the shell holds.
func (a *app) refuseSecondClaim(socket string, options *claimOptions, request *ipc.JobOpenRequest) error {
	holder, err := shellOf(os.Getppid())
	if err != nil {
		return nil // claimForShell reports the error
	}
	claims := claimsOf(holder, socket)
	if len(claims) == 0 {
		return nil
	}
	what := "a device"
	snapshot, err := a.snapshot()
	if err == nil {
		what = cmp.Or(heldDevices(snapshot.Devices, claims), what)
	}
	if (a.json || options.index) && (err != nil || !waitsForOwnClaims(snapshot.Devices, claims, request)) {
		return nil
	}
	code := exitFailed
	if options.onlyIfNone {
		code = exitBusy
	}
	return fail(code, "this shell holds %s already (claim %d), and its variables are not set here; "+
		"`gpuarb claim --release` gives it back, and eval \"$(gpuarb claim)\" takes one with its variables", what, claims[0])
}

// heldDevices returns the names of the devices that the claims hold.
func heldDevices(devices []figures.DeviceState, claims []int) string {
	var held []string
	for i := range devices {
		if isHeldBy(&devices[i], claims) {
			held = append(held, fmt.Sprintf("GPU %d", devices[i].Index))
		}
	}
	return strings.Join(held, ", ")
}

func isHeldBy(device *figures.DeviceState, claims []int) bool {
	return slices.ContainsFunc(device.Holders, func(h figures.HolderState) bool { return slices.Contains(claims, h.PID) })
}

// waitsForOwnClaims reports whether only claims of the shell itself block a request. With JobAny
// they hold all devices of the request; otherwise they hold at least one of these.
func waitsForOwnClaims(devices []figures.DeviceState, claims []int, request *ipc.JobOpenRequest) bool {
	own := 0
	for _, index := range request.Device[:request.Devices] {
		for i := range devices {
			if d := &devices[i]; d.Index == int(index) && d.SlotsMax <= 1 && isHeldBy(d, claims) {
				own++
			}
		}
	}
	return own > 0 && (request.Flags&ipc.JobAny == 0 || own == int(request.Devices))
}

// hint says how the output is meant to be used, if a terminal shows the output instead of a shell
// reading it.
func (a *app) hint(format string, args ...any) {
	if terminalWidth() > 0 {
		a.say(format, args...)
	}
}

// claimForCommand claims a device for a command (--exec), as run does for its job.
func (a *app) claimForCommand(library, path string, request ipc.JobOpenRequest, args []string) error {
	program, err := lookUp(args[0], os.Getenv("PATH"))
	if err != nil {
		return err
	}
	request.Command = ipc.MakeText(strings.Join(args, " "))
	caught, stop := catchSignals()
	defer stop()
	job, err := a.openJob(path, "", request, caught)
	if err != nil {
		return err
	}
	launch, err := launchOf(library, path, job)
	if err != nil {
		return err
	}
	return a.supervise(program, args, launch.Environ(os.Environ()), caught, func() { a.cancelTickets(path, job.Job) })
}

// claimForShell starts a keeper, which holds the claim, and prints the variables that programs
// need.
func (a *app) claimForShell(options *claimOptions, library, path string, request ipc.JobOpenRequest) error {
	holder := options.holder
	if holder == 0 {
		var err error
		if holder, err = shellOf(os.Getppid()); err != nil {
			return fail(exitFailed, "who is to have the claim? %w; name a process with --for PID, or use --exec", err)
		}
	}
	request.Command = ipc.MakeText(fmt.Sprintf("%s[%d] (gpuarb claim)", commandName(holder), holder))
	keeper, job, err := a.startKeeper(claimRequest{Path: path, Holder: holder, Job: request})
	if err != nil {
		return err
	}
	launch, err := launchOf(library, path, job)
	if err == nil {
		err = a.printClaim(options, launch, keeper.pid, job)
	}
	if err != nil {
		keeper.abandon()
		return err
	}
	return keeper.keep()
}

// claimVariables are the environment variables that a claim changes.
var claimVariables = []string{"CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK",
	"HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "LD_PRELOAD", "ASAN_OPTIONS", "GPUARB_SOCKET", "GPUARB_JOB",
	"GPUARB_VULKAN", "VK_ADD_LAYER_PATH", "VK_LAYER_PATH", "VK_INSTANCE_LAYERS"}

// claimed is the output of `gpuarb claim --json`.
type claimed struct {
	Claim       int               `json:"claim"` // value of GPUARB_CLAIM, the PID of the keeper
	Job         uint64            `json:"job"`
	Devices     []claimedDevice   `json:"devices"`
	Environment map[string]string `json:"environment"`
	Unset       []string          `json:"unset"`
}

type claimedDevice struct {
	Index   uint32 `json:"index"`
	Vendor  string `json:"vendor"`
	Ordinal uint32 `json:"ordinal"` // number among the devices of this vendor, from 0
}

func (a *app) printClaim(options *claimOptions, launch shim.Launch, keeper int, job ipc.JobOpenReply) error {
	environ := launch.Environ(os.Environ())
	err := a.show(describeClaim(environ, keeper, job), func(w io.Writer) (err error) {
		if options.index {
			_, err = fmt.Fprintln(w, indices(job))
		} else {
			_, err = fmt.Fprintf(w, "%sexport GPUARB_CLAIM=%d\n", exports(environ), keeper)
		}
		return err
	})
	if err == nil && !a.json && !options.index {
		a.hint("this shell holds GPU %s, and nothing has read its variables; write eval \"$(gpuarb claim)\"; `gpuarb claim --release` gives it back", indices(job))
	}
	return err
}

func describeClaim(environ []string, keeper int, job ipc.JobOpenReply) claimed {
	c := claimed{Claim: keeper, Job: job.ID, Devices: []claimedDevice{}, Environment: map[string]string{}, Unset: []string{}}
	for _, name := range claimVariables {
		if value, set := shim.LookupEnv(environ, name); set {
			c.Environment[name] = value
		} else {
			c.Unset = append(c.Unset, name)
		}
	}
	c.Environment["GPUARB_CLAIM"] = strconv.Itoa(keeper)
	for _, d := range job.Device[:job.Devices] {
		device := claimedDevice{Index: d.Index, Ordinal: d.Ordinal}
		for name, vendor := range ipc.Vendors {
			if vendor == d.Vendor {
				device.Vendor = name
			}
		}
		c.Devices = append(c.Devices, device)
	}
	return c
}

// exports returns shell commands that give each of claimVariables the value that it has in environ.
func exports(environ []string) string {
	var b strings.Builder
	for _, name := range claimVariables {
		if value, set := shim.LookupEnv(environ, name); set {
			fmt.Fprintf(&b, "export %s=%s\n", name, quote(value))
		} else {
			fmt.Fprintf(&b, "unset %s\n", name)
		}
	}
	return b.String()
}

// releaseClaim ends a claim, and prints the shell commands that restore the variables. Their former
// values are in the environment of the keeper, which it got from the shell.
func (a *app) releaseClaim(args []string) error {
	if len(args) > 1 {
		return fail(exitUsage, "one claim at a time: gpuarb claim --release [NUMBER]")
	}
	text, own := os.Getenv(claimName), len(args) == 0
	if !own {
		text = args[0]
	} else if a.ownClaim() == 0 {
		var claims []int
		if holder, err := shellOf(os.Getppid()); err == nil {
			claims = claimsOf(holder, "")
		}
		if len(claims) == 0 {
			return a.unsetClaim(text != "")
		}
		text = strconv.Itoa(claims[0])
	}
	pid, err := strconv.Atoi(text)
	if err != nil || pid <= 0 {
		return fail(exitUsage, "%q is no claim; its number is what %s holds", text, claimName)
	}
	before, err := endKeeper(pid)
	if err != nil {
		return fail(exitFailed, "claim %d: %w", pid, err)
	}
	if own || text == os.Getenv(claimName) { // this shell has the variables of the claim
		if err = a.printf("%sunset %s\n", exports(before), claimName); err == nil {
			a.hint("the claim is given back; where its variables were set, eval \"$(gpuarb claim --release)\" takes them out of this shell")
		}
	}
	return err
}

// unsetClaim prints the shell commands that remove the variables of a claim that has ended. The
// values before the claim are lost, because only the keeper had them.
func (a *app) unsetClaim(stale bool) error {
	a.say("this shell has no claim")
	before := ""
	if stale {
		before = exports(shim.Without(os.Environ()))
	}
	return a.printf("%sunset %s\n", before, claimName)
}
