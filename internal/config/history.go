package config

// This file reads the values of the settings of the history. schema.go lists the keys.

import (
	"fmt"
	"strconv"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
)

// historySizes reads the largest size of the history.
var historySizes = kind[accounting.Bytes]{
	read: func(v value) (accounting.Bytes, error) {
		n, err := amounts(boundedSizes).read(v)
		if err == nil && n < leastHistorySize {
			err = fmt.Errorf("must be at least %s", leastHistorySize.Human())
		}
		return n, err
	},
	format: amounts(boundedSizes).format,
	bytes:  true,
}

// historyAges reads times of at least a day.
var historyAges = kind[time.Duration]{
	read: func(v value) (time.Duration, error) {
		age, err := durations(false).read(v)
		if err == nil && (age < day || age > mostHistoryAge) {
			err = fmt.Errorf("must be from 1d to %dd, not %s", mostHistoryAge/day, v.display())
		}
		return age, err
	},
	format: func(age time.Duration) string {
		if age%day == 0 {
			return quote(strconv.FormatInt(int64(age/day), 10) + "d")
		}
		return quote(age.String())
	},
}
