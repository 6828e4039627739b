package main

// This file has `gpuarb plan`, which computes how much memory programs need together, before any of
// them runs. planreserve.go has plan --min.

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

// plan is the output of `gpuarb plan --json`.
type plan struct {
	Arms          uint64           `json:"arms"`
	Streams       uint64           `json:"streams"`
	StreamReserve accounting.Bytes `json:"stream_reserve_bytes"`
	Total         accounting.Bytes `json:"total_bytes"`
	Saturated     bool             `json:"saturated"` // the true total is larger than a uint64
}

func (a *app) planCommand() *cobra.Command {
	var wanted plan
	var reserve, minSize string
	command := a.jsonFlag(&cobra.Command{
		Use:   "plan --arms A {--streams S | --min SIZE}",
		Short: "print how much memory A programs take together, before anything runs",
		Long: "With --streams, prints arms × streams × the memory that each stream's working pool takes\n" +
			"(--stream-reserve, otherwise GPUARB_STREAM_RESERVE, otherwise 256 MiB). With --min, prints for\n" +
			"each device what the reservations come to (`gpuarb run --min`), with the memory of a context\n" +
			"beside each, at what one is known to cost there, and how many of the programs run at once. A program\n" +
			"of several processes needs a context for each: those beyond the first take free memory, unless\n" +
			"it runs with --per-process, where each process reserves for itself.",
		Args: argumentCount(0, 0),
		RunE: func(command *cobra.Command, _ []string) error {
			given := command.Flags().Changed("stream-reserve")
			streams, reserves := command.Flags().Changed("streams"), command.Flags().Changed("min")
			switch {
			case !command.Flags().Changed("arms"):
				return fail(exitUsage, "--arms: say how many run at once; see `gpuarb plan --help`")
			case reserves && (streams || given):
				return fail(exitUsage, "--min and --streams are planned one at a time: give one of them")
			case reserves:
				return a.planReservations(wanted.Arms, minSize)
			case !streams:
				return fail(exitUsage, "nothing to plan: give --streams S, or --min SIZE")
			}
			return a.plan(wanted, reserve, given)
		},
	})
	command.Flags().Uint64Var(&wanted.Arms, "arms", 0, "how many run at once")
	command.Flags().Uint64Var(&wanted.Streams, "streams", 0, "streams of each")
	command.Flags().StringVar(&reserve, "stream-reserve", "", "memory of each stream, as 256M")
	command.Flags().StringVar(&minSize, "min", "", "memory that each reserves, as 2G")
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
	streams, overA := saturatingProduct(p.Arms, p.Streams)
	total, overB := saturatingProduct(streams, uint64(p.StreamReserve))
	p.Total, p.Saturated = accounting.Bytes(total), total != 0 && (overA || overB)
	atLeast := ""
	if p.Saturated {
		atLeast = "at least "
	}
	return a.show(p, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "%d arms × %d streams × %s = %s%s (%d bytes)\n", p.Arms, p.Streams,
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
