package main

// This file turns the flags of run and claim into a request for a job. choosedevice.go adds the
// devices.

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/shim"
	"github.com/spf13/pflag"
)

const noExportsFlag = "no-exports"

// jobOptions are the flags that run and claim share, and the flags of run.
type jobOptions struct {
	name         string
	summary      bool
	memory       string
	min          string
	streams      int
	perProcess   bool
	device       string
	prefer       string
	exclusive    bool
	wait         waitValue
	noWait       bool
	firstRefused bool // value of --refuse-first
	noExports    bool // use the build of the library without exported driver functions

	exec          bool
	dieWithParent bool

	minSize   accounting.Size // parsed value of --min
	asVisible bool            // the request names the devices that the program sees anyway
}

// addTo adds the flags that run and claim share.
func (o *jobOptions) addTo(flags *pflag.FlagSet) {
	flags.StringVar(&o.memory, "memory", "", "the budget on each device; never more than the rules give; with run also auto: what earlier runs needed (gpuarb help suggest)")
	flags.StringVar(&o.min, "min", "", "of that, what is reserved from the start")
	flags.IntVar(&o.streams, "streams", 0, "the most streams of each process on each device")
	flags.StringVar(&o.prefer, "prefer", "", "which devices to try first, as 2,0; implies --device any")
	flags.BoolVar(&o.exclusive, "exclusive", false, "keep other jobs off its devices until it ends: with run and no --device, off all devices")
	flags.Var(&o.wait, waitFlag, "wait when there is no room, for as long as this: 10m, max; without a value as long as the rules say")
	flags.Lookup(waitFlag).NoOptDefVal = waitByRules
}

const (
	waitFlag        = "wait"
	refuseFirstFlag = "refuse-first"
)

// waitValue is the value of --wait, --wait=10m or --wait=max.
type waitValue struct {
	text  string        // "": the flag was not given
	limit time.Duration // 0: the rules of the configuration decide
}

const (
	waitByRules = "rules" // stands for --wait without a value
	waitMax     = "max"
)

func (p *waitValue) String() string { return p.text }
func (p *waitValue) Type() string   { return "duration" }

// Set reads a duration.
func (p *waitValue) Set(text string) (err error) {
	*p = waitValue{text: text}
	if text != waitByRules && text != waitMax {
		p.limit, err = parseWait(text)
	}
	return err
}

var errWaitZero = errors.New("must be above 0; --no-wait does not wait")

// parseWait reads a duration such as 10m or 1.5h, or a bare number of seconds as flock(1) does.
func parseWait(text string) (time.Duration, error) {
	if seconds, err := strconv.ParseFloat(text, 64); err == nil && seconds >= math.MaxInt32 {
		return 0, fmt.Errorf("%q is too long: write less than %d seconds, or max", text, math.MaxInt32)
	} else if err == nil {
		text = strconv.FormatFloat(seconds, 'f', -1, 64) + "s"
	}
	limit, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%q is no duration; write 90s, 10m, 2h or max", text)
	case limit <= 0:
		return 0, errWaitZero
	}
	return max(limit, time.Millisecond), nil
}

// joinWait joins --wait and its value to one argument (--wait 10m to --wait=10m). If a value is
// optional, the flag parser takes only a value in the same argument. Arguments after the flags stay
// as they are.
func joinWait(flags *pflag.FlagSet, args []string) []string {
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if arg == "--" || len(arg) < 2 || arg[0] != '-' {
			break
		}
		if arg == "--"+waitFlag && i+1 < len(args) {
			if _, err := parseWait(args[i+1]); err == nil || errors.Is(err, errWaitZero) || args[i+1] == waitMax {
				return slices.Concat(args[:i], []string{arg + "=" + args[i+1]}, args[i+2:])
			}
		}
		if flag := flags.Lookup(arg[min(2, len(arg)):]); flag != nil && flag.NoOptDefVal == "" {
			i++ // skip its value
		}
	}
	return args
}

// request turns the options into a request. The budget is returned separately.
func (o *jobOptions) request(flags *pflag.FlagSet) (ipc.JobOpenRequest, accounting.Size, error) {
	request := ipc.JobOpenRequest{Memory: ipc.NoLimit, Min: ipc.NoLimit}
	size := accounting.Size{Max: true}
	var err error
	for _, name := range []string{"device", "prefer"} {
		if flag := flags.Lookup(name); flag.Changed && strings.TrimSpace(flag.Value.String()) == "" {
			return request, size, fmt.Errorf("--%s: it is empty; write an index, UUID or PCI address; `gpuarb devices` lists them", name)
		}
	}
	if flags.Changed("memory") {
		if size, err = accounting.ParseSize(o.memory); err != nil {
			return request, size, fmt.Errorf("--memory: %w", err)
		}
		if size == (accounting.Size{}) {
			return request, size, errors.New("--memory: a program without any device memory needs no GPU; write more than 0")
		}
		request.Memory, request.MemoryShare = shim.WireSize(size)
	}
	if flags.Changed("min") {
		minSize, err := accounting.ParseSize(o.min)
		if err != nil {
			return request, size, fmt.Errorf("--min: %w", err)
		}
		if request.Min, request.MinShare = shim.WireSize(minSize); minSize.Max {
			request.Min, request.MinShare = request.Memory, request.MemoryShare // the whole budget
			if size.Max {
				request.MinShare = 1000 // the most that the device can give
			}
		}
		if minSize.MoreThan(size) {
			return request, size, fmt.Errorf("--min: %s is more than the budget, --memory %s", o.min, o.memory)
		}
		o.minSize = minSize
	}
	if flags.Changed("streams") && (o.streams < 1 || o.streams > math.MaxInt32) {
		return request, size, fmt.Errorf("--streams: %d is no limit; write a number from 1 to %d", o.streams, math.MaxInt32)
	}
	request.Streams = uint32(o.streams)
	return request, size, o.flags(&request)
}

// checkEnvironment refuses invalid sizes in the environment, because the library would refuse the
// program all device memory for them.
func (a *app) checkEnvironment() error {
	for _, name := range []string{"GPUARB_MEMORY", "GPUARB_HOST", "GPUARB_STREAM_RESERVE"} {
		if text := os.Getenv(name); text != "" {
			size, err := accounting.ParseSize(text)
			if err == nil && size.PerMille != 0 && name != "GPUARB_MEMORY" {
				err = fmt.Errorf("%q is a share; write an amount, as 256M", text)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}

// wishes returns the flags that programs of the job find in their environment, where the library reads them.
func (o *jobOptions) wishes(flags *pflag.FlagSet) []string {
	switch {
	case !flags.Changed(refuseFirstFlag):
		return nil
	case o.firstRefused:
		return []string{"GPUARB_REFUSE_FIRST=1"}
	}
	return []string{"GPUARB_REFUSE_FIRST=0"}
}

func (o *jobOptions) flags(request *ipc.JobOpenRequest) error {
	if o.wait.text != "" && o.noWait {
		return errors.New("--wait and --no-wait (of claim: --try) exclude each other: leave out one of the two")
	}
	if o.firstRefused && o.noWait {
		return errors.New("--refuse-first: with --no-wait each request without room is refused; leave out one of the two")
	}
	for flag, set := range map[uint32]bool{
		ipc.JobPerProcess: o.perProcess, ipc.JobExclusive: o.exclusive, ipc.JobWait: o.wait.text != "", ipc.JobNoWait: o.noWait,
	} {
		if set {
			request.Flags |= flag
		}
	}
	request.WaitMillis = uint64(o.wait.limit.Milliseconds())
	if o.wait.text == waitMax {
		request.WaitMillis = ipc.NoLimit
	}
	return nil
}

// checkSizes refuses an absolute --memory or --min that is larger than every device. Such a budget
// would limit nothing, and such a reservation could never be granted.
func (o *jobOptions) checkSizes(devices []figures.DeviceState, size accounting.Size) error {
	if err := checkSize(devices, "--memory", size); err != nil {
		return err
	}
	return checkSize(devices, "--min", o.minSize)
}

func checkSize(devices []figures.DeviceState, flag string, size accounting.Size) error {
	devices = filter(devices, func(d figures.DeviceState) bool { return d.Total > 0 }) // the daemon checks devices whose total is not known here
	if len(devices) == 0 || !size.IsAbsolute() {
		return nil
	}
	largest := slices.MaxFunc(devices, func(a, b figures.DeviceState) int { return cmp.Compare(a.Total, b.Total) })
	if size.Bytes <= largest.Total {
		return nil
	}
	which := ""
	if len(devices) > 1 {
		which = ", the largest here,"
	}
	return fmt.Errorf("%s: %s is more than device %s (%s)%s has: %s; ask for less, or for a share such as 50%%",
		flag, size.WithUnit(), accounting.IndexName(largest.Index), largest.Name, which, largest.Total.Human())
}
