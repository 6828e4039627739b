package archive

// This file has the types of an open store.

import (
	"context"
	"database/sql"
	"os"
	"sync"

	"github.com/gpuarb/gpuarb/archive/rows"
)

// store is the open SQLite file, with the numbers and totals of it that are kept in memory.
type store struct {
	path    string
	lock    *os.File         // open as long as the lock of the folder is held
	write   *sql.DB          // one connection
	read    *sql.DB          // connections that cannot write
	texts   map[string]int64 // numbers of texts
	devices map[device]int64
	open    map[jobKey]*openJob // jobs that this process has written and that have not ended

	mu      sync.Mutex
	answers map[*context.CancelFunc]bool // end the answers that are being made
	closed  bool                         // no answer may begin
	changed *sync.Cond                   // answers or closed
}

// device identifies a device, by its UUID and its index. A device without a UUID has the index alone.
type device struct {
	uuid   string
	number int
}

// jobKey identifies the row of a job, because each start of the daemon counts in a new row.
type jobKey struct {
	daemon string
	job    uint64
}

// openJob is the state of the row of a job that has not ended.
type openJob struct {
	row    int64              // number in the table jobs
	seenMs int64              // time of the last totals
	totals map[int64]rows.Use // last totals, by number of the device
}
