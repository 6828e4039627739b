// Package archive keeps the history of jobs in an SQLite file, in a process of its own. Root's daemon starts that process as an unprivileged
// user; package daemon feeds it through a pipe, and readers ask it over a socket. The lines of both are those of package rows.
//
// The main function is Run, which cmd/gpuarbd calls. One goroutine reads the daemon's lines and writes them to the store; each reader has a
// goroutine and uses a connection that cannot write. When the pipe ends, the process writes what it has read, and ends.
//
// A row of the daemon has totals. The store keeps the growth of each total by hour, so that a report can leave out what was before its
// beginning. The growth is the difference from the last totals, so that a row that is sent twice is counted once.
//
// Files, from the bottom up: schema.go (tables and their versions), store.go (types), open.go (the file: lock, migration, damage), names.go (texts and
// devices that many rows share), write.go (rows of the daemon), prune.go (bounds of size and age), report.go, past.go (answers),
// serve.go (readers), run.go (the process).
package archive
