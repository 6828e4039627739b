package wording

import (
	"fmt"
	"strings"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
)

// This file makes the sentence about the usage of a job at its end. tally.go of package arbiter and `gpuarb run` call it.

// Use is the most memory that a job used on a device at once.
type Use struct {
	Device string // its name in sentences
	Peak   accounting.Bytes
	Max    accounting.Bytes // the job's limit there; accounting.Max: none
}

// Account returns the end of a sentence about a job: what the job used, how many of its requests waited, for how long in all, and
// how many were refused. unknown is the number of devices that it used and the daemon does not know: their memory is refused.
// since is how long ago counting began, if that was after the job began; else 0.
func Account(used []Use, unknown int, waits, refused uint64, waited, since time.Duration) string {
	var amounts []string
	for _, u := range used {
		of := ""
		if u.Max != accounting.Max {
			of = " of " + u.Max.Human()
		}
		amounts = append(amounts, fmt.Sprintf("%s%s on %s", u.Peak.Human(), of, u.Device))
	}
	line := "asked for no GPU memory"
	if refused > 0 {
		line = "got no GPU memory"
	}
	if unknown > 0 {
		line = "used no memory of a GPU that is known"
	}
	if amounts != nil {
		line = "used at most " + strings.Join(amounts, ", ")
	}
	if waits > 0 {
		line += fmt.Sprintf("; %s waited %v", requests(waits), rounded(waited))
		if waits > 1 {
			line += " in all"
		}
	}
	if refused > 0 {
		line += "; " + requests(refused) + " refused"
	}
	switch {
	case unknown == 1:
		line += "; was refused all memory of a device that the daemon does not know"
	case unknown > 1:
		line += fmt.Sprintf("; was refused all memory of %d devices that the daemon does not know", unknown)
	}
	if since > 0 {
		line += fmt.Sprintf(" (counted since the daemon was restarted %v ago)", rounded(since))
	}
	return line
}

// requests spells a number of requests.
func requests(n uint64) string {
	if n == 1 {
		return "1 request"
	}
	return fmt.Sprintf("%d requests", n)
}

// rounded rounds a duration for users: to the millisecond below a second, to the second above.
func rounded(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(time.Second)
}
