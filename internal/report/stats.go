package report

// This file writes /gpu/stats. gpufs/root.go calls it; pressure.go counts the requests.

import (
	"bufio"
	"fmt"
	"io"
	"reflect"

	"github.com/gpuarb/gpuarb/internal/figures"
)

// Stats writes the counters, one "key value" per line. The keys are the JSON names of figures.Stats
// in its order. After them come refusals by reason and waits by outcome.
func Stats(w io.Writer, s figures.Snapshot) error {
	out := bufio.NewWriter(w)
	values := reflect.ValueOf(s.Stats)
	for i := range values.NumField() {
		key := values.Type().Field(i).Tag.Get("json")
		fmt.Fprintf(out, "%s %d\n", key, values.Field(i).Uint())
	}
	requestCounts(out, s.Counts)
	return out.Flush()
}
