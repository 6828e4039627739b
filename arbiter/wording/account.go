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
	Device   string // its name in sentences
	Peak     accounting.Bytes
	Max      accounting.Bytes // the job's limit there; accounting.Max: none
	Contexts accounting.Bytes // what contexts took beside that; 0: nothing, or not known
	Kept     bool             // Contexts was kept for contexts that the device has not shown
}

// Requests counts the requests of a job.
type Requests struct {
	Waits, Refused uint64
	Waited         time.Duration // time that they waited in all
	LastRefused    string        // why the last one was refused, to be written behind "the last"; "": not known
}

// Account returns the end of a sentence about a job: what the job used, how many of its requests waited, for how long in all, how many were
// refused, and why the last one was. unknown is the number of devices that it used and the daemon does not know: their memory is refused.
// since is how long ago counting began, if that was after the job began; else 0.
func Account(asked Requests, used []Use, unknown int, since time.Duration) string {
	var parts []string
	switch amounts := amounts(used); {
	case amounts != "":
		parts = append(parts, "used at most "+amounts)
	case unknown > 0:
		parts = append(parts, "used no memory of a GPU that is known")
	case asked.Refused == 0:
		parts = append(parts, "asked for no GPU memory")
	}
	if asked.Waits > 0 {
		waited := fmt.Sprintf("%s waited %v", requests(asked.Waits), rounded(asked.Waited))
		if asked.Waits > 1 {
			waited += " in all"
		}
		parts = append(parts, waited)
	}
	if asked.Refused > 0 {
		refused := requests(asked.Refused) + " refused"
		switch why := asked.LastRefused; {
		case why == "":
		case asked.Refused > 1:
			refused += ", the last" + why
		case strings.HasPrefix(why, ":"):
			refused += why
		default:
			refused += "," + why
		}
		parts = append(parts, refused)
	}
	switch {
	case unknown == 1:
		parts = append(parts, "was refused all memory of a device that the daemon does not know")
	case unknown > 1:
		parts = append(parts, fmt.Sprintf("was refused all memory of %d devices that the daemon does not know", unknown))
	}
	line := strings.Join(parts, "; ")
	if since > 0 {
		line += fmt.Sprintf(" (counted since the daemon was restarted %v ago)", rounded(since))
	}
	return line
}

// amounts lists what a job used on each device.
func amounts(used []Use) string {
	var all []string
	for _, u := range used {
		text := u.Peak.Human()
		if u.Max != accounting.Max {
			text += " of " + u.Max.Human()
		}
		text += " on " + u.Device
		switch {
		case u.Contexts == 0:
		case u.Kept:
			text += fmt.Sprintf(" (and %s kept for contexts)", u.Contexts.Human())
		default:
			text += fmt.Sprintf(" (and %s for contexts)", u.Contexts.Human())
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
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
