package main

// This file has `gpuarb plan`: its flags, and the memory of stream pools. plannow.go has what is free
// now, and planreserve.go plan --min.

import (
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"os"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/spf13/cobra"
)

// defaultReserve is the working pool of one stream, unless the user gives another size.
const defaultReserve accounting.Bytes = 256 << 20

// plan is the output of `gpuarb plan --streams --json`.
type plan struct {
	Arms          uint64           `json:"arms"` // the same as copies
	Copies        uint64           `json:"copies"`
	Streams       uint64           `json:"streams"`
	StreamReserve accounting.Bytes `json:"stream_reserve_bytes"`
	Total         accounting.Bytes `json:"total_bytes"`
	Saturated     bool             `json:"saturated"` // the true total is larger than a uint64
}

func (a *app) planCommand() *cobra.Command {
	wanted := plan{Copies: 1}
	var reserve, minSize, devices string
	command := a.jsonFlag(&cobra.Command{
		Use:   "plan [--min SIZE | --streams S] [--copies N]",
		Short: "say what is free now, and whether programs would run at once, before anything runs",
		Long: `Looks at each GPU as it is now: what is free beside programs, reservations, contexts and programs without
gpuarb, and which request of the queue is ahead of a new program.

With --min it says whether a program that reserves SIZE (gpuarb run --min) would run at once or wait, with the
memory of a context beside the reservation, at what one is known to cost there. With --copies it says how many
of several such programs. A program of several processes needs a context for each: those beyond the first take
free memory, unless it runs with --per-process, where each process reserves for itself. The answer counts the
budget that your programs share now. A rule counts only if one of your programs is under it.

With --streams it computes the memory of stream pools instead: copies × streams × the memory that the pool of
each stream takes (--stream-reserve, otherwise GPUARB_STREAM_RESERVE, otherwise 256 MiB). That needs no daemon.`,
		Example: "  gpuarb plan\n  gpuarb plan --min 15G\n  gpuarb plan --copies 8 --min 2G --device 0\n  gpuarb plan --copies 4 --streams 8",
		Args:    argumentCount(0, 0),
		RunE: func(command *cobra.Command, _ []string) error {
			given := command.Flags().Changed("stream-reserve")
			streams, reserves := command.Flags().Changed("streams"), command.Flags().Changed("min")
			switch {
			case reserves && (streams || given):
				return fail(exitUsage, "--min and --streams are planned one at a time: give one of them")
			case streams && devices != "":
				return fail(exitUsage, "--streams computes a product, which is the same on every device: leave out --device")
			case streams:
				return a.plan(wanted, reserve, given)
			case given:
				return fail(exitUsage, "--stream-reserve: say how many streams: --streams S")
			case reserves:
				return a.planReservations(wanted.Copies, minSize, devices)
			case command.Flags().Changed("copies") || command.Flags().Changed("arms"):
				return fail(exitUsage, "nothing to plan for the copies: give --min SIZE, or --streams S")
			}
			return a.planNow(devices)
		},
	})
	flags := command.Flags()
	flags.Uint64Var(&wanted.Copies, "copies", 1, "how many programs")
	flags.Uint64Var(&wanted.Copies, "arms", 1, "another name of --copies")
	hide(flags, "arms")
	command.MarkFlagsMutuallyExclusive("copies", "arms")
	flags.Uint64Var(&wanted.Streams, "streams", 0, "streams of each")
	flags.StringVar(&reserve, "stream-reserve", "", "memory of each stream, as 256M")
	flags.StringVar(&minSize, "min", "", "memory that each reserves, as 2G")
	flags.StringVar(&devices, "device", "", "only these devices, as 0 or 0,1; otherwise those that CUDA_VISIBLE_DEVICES and its like let a program see")
	a.completeDevices(command)
	return command
}

func (a *app) plan(p plan, reserve string, given bool) error {
	p.StreamReserve = a.environmentReserve()
	if given {
		var err error
		if p.StreamReserve, err = parseReserve(reserve); err != nil {
			return fail(exitUsage, "--stream-reserve: %w", err)
		}
	}
	p.Arms = p.Copies
	streams, overA := saturatingProduct(p.Copies, p.Streams)
	total, overB := saturatingProduct(streams, uint64(p.StreamReserve))
	p.Total, p.Saturated = accounting.Bytes(total), total != 0 && (overA || overB)
	atLeast := ""
	if p.Saturated {
		atLeast = "at least "
	}
	return a.show(p, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "%s × %s × %s = %s%s (%d bytes)\n", counted(p.Copies, "copy", "copies"), counted(p.Streams, "stream", "streams"),
			sizeText(p.StreamReserve), atLeast, sizeText(p.Total), p.Total)
		return err
	})
}

// saturatingProduct returns a × b. If that is too large, it returns the largest uint64 and true.
func saturatingProduct(a, b uint64) (uint64, bool) {
	high, low := bits.Mul64(a, b)
	if high != 0 {
		return math.MaxUint64, true
	}
	return low, false
}

// environmentReserve reads GPUARB_STREAM_RESERVE. An invalid value is reported and ignored, because
// plan starts no program.
func (a *app) environmentReserve() accounting.Bytes {
	text := os.Getenv("GPUARB_STREAM_RESERVE")
	if text == "" {
		return defaultReserve
	}
	reserve, err := parseReserve(text)
	if err == nil && reserve == 0 {
		err = errors.New("must be above 0")
	}
	if err != nil {
		a.say("GPUARB_STREAM_RESERVE=%s is ignored: %v", text, err)
		return defaultReserve
	}
	return reserve
}

func parseReserve(text string) (accounting.Bytes, error) {
	size, err := accounting.ParseSize(text)
	if err == nil && !size.IsAbsolute() {
		err = errors.New("must be an amount, as 256M")
	}
	return size.Bytes, err
}
