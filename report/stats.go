package report

import (
	"bufio"
	"fmt"
	"io"
	"reflect"

	"github.com/gpuarb/gpuarb/accounting"
)

// Stats writes the counters, one "key value" per line. The keys are the JSON names
// of accounting.Stats, in its order; behind them are refusals by reason and waits by outcome.
func Stats(w io.Writer, s accounting.Snapshot) error {
	out := bufio.NewWriter(w)
	values := reflect.ValueOf(s.Stats)
	for i := range values.NumField() {
		key := values.Type().Field(i).Tag.Get("json")
		fmt.Fprintf(out, "%s %d\n", key, values.Field(i).Uint())
	}
	requestCounts(out, s.Counts)
	return out.Flush()
}
