package main

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
	"github.com/gpuarb/gpuarb/figures"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/shim"
	"github.com/spf13/pflag"
)

const noExportsFlag = "no-exports"

// jobOptions is what run and claim can be asked for on their command line.
type jobOptions struct {
	name       string
	summary    bool
	memory     string
	min        string
	streams    int
	perProcess bool
	device     string
	prefer     string
	exclusive  bool
	wait       patienceFlag
	noWait     bool
	noExports  bool // the library without exported driver functions

	exec          bool
	dieWithParent bool

	least  accounting.Size // --min, as it was read
	asSeen bool            // its devices are those that its program sees anyway
}

// addTo adds the flags that run and claim have in common.
func (o *jobOptions) addTo(flags *pflag.FlagSet) {
	flags.StringVar(&o.memory, "memory", "", "the budget on each device; never more than the rules give")
	flags.StringVar(&o.min, "min", "", "of that, what is reserved from the start")
	flags.IntVar(&o.streams, "streams", 0, "the most streams of each process on each device")
	flags.StringVar(&o.prefer, "prefer", "", "which devices to try first, as 2,0; implies --device any")
	flags.BoolVar(&o.exclusive, "exclusive", false, "nobody else uses its devices until it ends: with run and no --device, all of them")
	flags.Var(&o.wait, waitFlag, "wait when there is no room, for as long as this: 10m, max; without a value as long as the rules say")
	flags.Lookup(waitFlag).NoOptDefVal = patienceOfRules
}

const waitFlag = "wait"

// patienceFlag is how long to wait: --wait, --wait=10m, --wait=max.
type patienceFlag struct {
	text  string        // "": it was not given
	limit time.Duration // 0: as the rules say
}

const (
	patienceOfRules = "rules" // stands for --wait without a value
	patienceMax     = "max"
)

func (p *patienceFlag) String() string { return p.text }
func (p *patienceFlag) Type() string   { return "duration" }

// Set reads a duration.
func (p *patienceFlag) Set(text string) (err error) {
	*p = patienceFlag{text: text}
	if text != patienceOfRules && text != patienceMax {
		p.limit, err = parsePatience(text)
	}
	return err
}

var errNoPatience = errors.New("must be above 0; --no-wait does not wait")

// parsePatience reads 10m, 1.5h, or a bare number of seconds, as flock(1) takes it.
func parsePatience(text string) (time.Duration, error) {
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
		return 0, errNoPatience
	}
	return max(limit, time.Millisecond), nil
}

// joinWait lets --wait take its value as the next argument too (--wait 10m): where the
// value is optional, the parser takes it from the same argument alone. What comes
// behind the flags is not looked at.
func joinWait(flags *pflag.FlagSet, args []string) []string {
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if arg == "--" || len(arg) < 2 || arg[0] != '-' {
			break
		}
		if arg == "--"+waitFlag && i+1 < len(args) {
			if _, err := parsePatience(args[i+1]); err == nil || errors.Is(err, errNoPatience) || args[i+1] == patienceMax {
				return slices.Concat(args[:i], []string{arg + "=" + args[i+1]}, args[i+2:])
			}
		}
		if flag := flags.Lookup(arg[min(2, len(arg)):]); flag != nil && flag.NoOptDefVal == "" {
			i++ // its value
		}
	}
	return args
}

// request turns the options into a request; the budget is returned apart.
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
		least, err := accounting.ParseSize(o.min)
		if err != nil {
			return request, size, fmt.Errorf("--min: %w", err)
		}
		if request.Min, request.MinShare = shim.WireSize(least); least.Max {
			request.Min, request.MinShare = request.Memory, request.MemoryShare // all of the budget
			if size.Max {
				request.MinShare = 1000 // all that can be
			}
		}
		if least.MoreThan(size) {
			return request, size, fmt.Errorf("--min: %s is more than the budget, --memory %s", o.min, o.memory)
		}
		o.least = least
	}
	if flags.Changed("streams") && (o.streams < 1 || o.streams > math.MaxInt32) {
		return request, size, fmt.Errorf("--streams: %d is no limit; write a number from 1 to %d", o.streams, math.MaxInt32)
	}
	request.Streams = uint32(o.streams)
	return request, size, o.flags(&request)
}

// checkEnvironment refuses sizes in the environment that cannot be read: the library would
// refuse the program all device memory for them.
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

func (o *jobOptions) flags(request *ipc.JobOpenRequest) error {
	if o.wait.text != "" && o.noWait {
		return errors.New("--wait and not to wait exclude each other")
	}
	for flag, set := range map[uint32]bool{
		ipc.JobPerProcess: o.perProcess, ipc.JobExclusive: o.exclusive, ipc.JobWait: o.wait.text != "", ipc.JobNoWait: o.noWait,
	} {
		if set {
			request.Flags |= flag
		}
	}
	request.WaitMillis = uint64(o.wait.limit.Milliseconds())
	if o.wait.text == patienceMax {
		request.WaitMillis = ipc.NoLimit
	}
	return nil
}

// checkSizes refuses an absolute budget that no device could ever give: it would be
// no budget. And so for what is to be reserved of it.
func (o *jobOptions) checkSizes(devices []figures.DeviceState, size accounting.Size) error {
	if err := checkSize(devices, "--memory", size); err != nil {
		return err
	}
	return checkSize(devices, "--min", o.least)
}

func checkSize(devices []figures.DeviceState, flag string, size accounting.Size) error {
	devices = filter(devices, func(d figures.DeviceState) bool { return d.Total > 0 }) // the daemon checks the others: it knows their total
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
