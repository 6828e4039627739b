// Package archive keeps the history of jobs in an SQLite file (the store), in a process of its own. The event history is another
// one: it has decisions, is kept in the daemon's memory, and belongs to package daemon/history. Root's daemon starts that process as an unprivileged
// user; package daemon feeds it through a pipe, and readers ask it over a socket. Package rows has the
// lines of the pipe and of the socket.
//
// The main function is Run, which cmd/gpuarbd calls. One goroutine reads the daemon's lines and writes them to the store; each reader has a
// goroutine and uses a connection that cannot write. When the pipe ends, the process writes what it has read, and ends.
//
// A row of the daemon has totals. For each hour, the store keeps by how much each total has grown, so that a report can leave
// out what was before its beginning. The growth is the difference from the last totals. A row that is sent twice is thus counted once.
//
// Files, from the bottom up: schema.go (tables and their versions), store.go (types), open.go (lock, migration and damage of the file), names.go (texts and
// devices that many rows share), write.go (rows of the daemon), prune.go (bounds of size and age), tally.go (sums of a report), report.go, past.go
// (answers), serve.go (readers), run.go (the process).
package archive
