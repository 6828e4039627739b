package archive

// This file adds up rows of the table uses for a report. SQLite calls add_use for each row, because SQLite alone would sort all rows to group
// them. report.go makes the query, and completes the sums.

import (
	"database/sql/driver"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/gpuarb/gpuarb/archive/rows"
	"modernc.org/sqlite"
)

// tally collects the totals of a report.
type tally struct {
	totals []*total
	of     map[int64]*total // totals by key
	latest *total           // the total to which the latest row was added; nil: none
	unused []total          // allocated in advance, because a report by job has many totals

	byJob   bool              // the key is a row of jobs
	first   map[int64]int64   // first row of the same job, by row; only jobs that several daemons counted have several rows, and are here
	counted map[[2]int64]bool // keys and first rows of those jobs that are counted
}

// total has the sums of one key. Its amounts are in byte-seconds, and its times in milliseconds, Hours too: report.go converts them.
type total struct {
	rows.Sum
	key  int64 // number of the text or device; first row of the job
	name int64 // text: name of the latest job
	job  int64 // number of the latest job
	row  int64 // latest row of jobs that was counted; 0: none
}

// tallies has the tallies of the reports that are being made, by number. A query gives the number to add_use.
var (
	tallies     sync.Map
	lastTallied atomic.Int64
)

// newTally returns an empty tally and its number. The caller must call done when the report is made.
func newTally() (t *tally, number int64, done func()) {
	t, number = &tally{of: map[int64]*total{}, first: map[int64]int64{}, counted: map[[2]int64]bool{}}, lastTallied.Add(1)
	tallies.Store(number, t)
	return t, number, func() { tallies.Delete(number) }
}

// useArguments are the arguments of add_use after the number of the tally and the key, in the order in which add reads them. The alias of uses
// is u, that of jobs is j, and w is the share of the row that counts.
const useArguments = "j.id, j.job, j.name, w, u.until - u.since, u.held, u.granted, u.reserved, u.committed, u.peak, u.idle, u.waits, u.waited, u.refused"

func init() {
	sqlite.MustRegisterFunction("add_use", &sqlite.FunctionImpl{NArgs: int32(3 + strings.Count(useArguments, ",")), VolatileArgs: true,
		Scalar: func(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
			t, ok := tallies.Load(args[0])
			if !ok {
				return nil, fmt.Errorf("there is no report %v", args[0])
			}
			t.(*tally).add(is[int64](args[1]), args[2:])
			return nil, nil
		}})
}

// find returns the total of a key. It makes the total if there is none.
func (t *tally) find(key int64) *total {
	if t.latest != nil && t.latest.key == key {
		return t.latest
	}
	if t.latest = t.of[key]; t.latest == nil {
		if len(t.unused) == 0 {
			t.unused = make([]total, 256)
		}
		t.latest, t.unused = &t.unused[0], t.unused[1:]
		t.latest.key = key
		t.of[key] = t.latest
		t.totals = append(t.totals, t.latest)
	}
	return t.latest
}

// add adds a row with the columns useArguments to the total of a key. The rows of one job and device must follow one another.
func (t *tally) add(key int64, row []driver.Value) {
	id := is[int64](row[0])
	first, several := t.first[id]
	if several && t.byJob {
		key = first
	}
	of := t.find(key)
	if id != of.row {
		of.row, of.job, of.name = id, is[int64](row[1]), is[int64](row[2])
		if !several || !t.counted[[2]int64{key, first}] {
			of.Jobs++
		}
		if several {
			t.counted[[2]int64{key, first}] = true
		}
	}
	w, peak := is[float64](row[3]), is[int64](row[9])
	ms := w * float64(is[int64](row[4]))
	of.Held += w * is[float64](row[5])
	of.Granted += w * is[float64](row[6])
	of.Reserved += w * is[float64](row[7])
	of.Committed += w * is[float64](row[8])
	of.Peak = max(of.Peak, uint64(peak))
	of.AtPeak += ms / 1000 * float64(peak)
	of.Hours += ms
	of.Idle += w * float64(is[int64](row[10]))
	of.Waits += is[int64](row[11])
	of.Waited += w * float64(is[int64](row[12]))
	of.Refused += is[int64](row[13])
}

// is returns a value of SQLite as a number of a type; 0 if it has another type.
func is[T int64 | float64](v driver.Value) T {
	n, _ := v.(T)
	return n
}
