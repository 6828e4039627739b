package archive

// This file has the types of an open store.

import (
	"context"
	"database/sql"
	"os"
	"sync"

	"github.com/gpuarb/gpuarb/archive/rows"
)

// store is the open file.
type store struct {
	path    string
	lock    *os.File
	write   *sql.DB // one connection
	read    *sql.DB // connections that cannot write
	texts   map[string]int64
	devices map[device]int64
	open    map[jobKey]*openJob // jobs that were written and have not ended

	mu      sync.Mutex
	answers map[*context.CancelFunc]bool // end the answers that are being made
	closed  bool                         // no answer may begin
	changed *sync.Cond                   // answers or closed
}

// device identifies a device: by its UUID, and by its index if it has none.
type device struct {
	uuid   string
	number int
}

// jobKey identifies a job in one life of the daemon.
type jobKey struct {
	daemon string
	job    uint64
}

// openJob has the last row of a job that has not ended.
type openJob struct {
	row    int64
	seenMs int64
	totals map[int64]rows.Use // last totals, by number of the device
}
