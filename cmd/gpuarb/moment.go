package main

// This file reads times and durations of flags: `gpuarb ps --idle 1h`, `gpuarb events --since 7d`.

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// maxDays is the longest time in days that a flag takes. It keeps durations far from the largest
// time.Duration, which is 292 years.
const maxDays = 36500

// parseAge reads a time that is over, such as 90s, 10m, 2h, 7d or 1d12h. A bare number is seconds,
// as with --wait.
func parseAge(text string) (time.Duration, error) {
	days, rest, hasDays := strings.Cut(text, "d")
	var age time.Duration
	if hasDays {
		n, err := strconv.ParseUint(days, 10, 32)
		if err != nil || n > maxDays {
			return 0, noAge(text)
		}
		age = time.Duration(n) * 24 * time.Hour
	} else {
		rest = text
	}
	if rest != "" || !hasDays {
		if seconds, err := strconv.ParseUint(rest, 10, 31); err == nil && !hasDays {
			rest = strconv.FormatUint(seconds, 10) + "s"
		}
		more, err := time.ParseDuration(rest)
		if err != nil || more < 0 {
			return 0, noAge(text)
		}
		age += more
	}
	if age <= 0 || age > maxDays*24*time.Hour {
		return 0, noAge(text)
	}
	return age, nil
}

func noAge(text string) error {
	return fmt.Errorf("%q is not a duration above 0; write 90s, 10m, 2h or 7d", text)
}

// moments are the forms of a point in time that parseSince takes. A form without a date means
// today, and a form without a time the beginning of the day.
var moments = []string{time.RFC3339, "2006-01-02T15:04:05", time.DateTime, "2006-01-02T15:04", "2006-01-02 15:04", time.DateOnly, time.TimeOnly, "15:04"}

// parseSince reads the time since which something is wanted: a duration before now, or a point in
// time in the time zone of the machine.
func parseSince(text string, now time.Time) (time.Time, error) {
	if age, err := parseAge(text); err == nil {
		return now.Add(-age), nil
	}
	for _, form := range moments {
		at, err := time.ParseInLocation(form, text, now.Location())
		if err != nil {
			continue
		}
		if !strings.HasPrefix(form, "2006") {
			at = time.Date(now.Year(), now.Month(), now.Day(), at.Hour(), at.Minute(), at.Second(), at.Nanosecond(), now.Location())
		}
		if at.After(now) {
			return at, fmt.Errorf("%q is in the future: it is %s now", text, now.Format(time.DateTime))
		}
		return at, nil
	}
	return time.Time{}, errors.New(strconv.Quote(text) + ` is neither a duration nor a time; write 90s, 2h, 7d, "14:30", 2026-11-25 or "2026-11-25 14:30"`)
}
