// Package report formats a snapshot as text: the tables and values that the filesystem and the
// command line show, and the JSON of the commands. Both print the same bytes for the same snapshot,
// because both call this package. The main types are Style, which is how a table is printed, and
// Field, which is the content of a file.
//
// The forms follow cgroup v2: bytes in decimal, "max" for no limit, "-" for an empty value, one
// value or flat-keyed lines per file, a newline at the end. Tables have one header line and columns
// separated by spaces. Only the last column, COMMAND, may contain a space. It is escaped, so that
// no program can forge a row by its name.
//
// Every function is pure: it reads its arguments, writes to its writer and keeps nothing. Calls may
// run at the same time as long as no goroutine changes the snapshot. The only errors are those of
// the writer. The package takes no snapshots: package figures has their types, and the daemon makes
// them.
//
// docs/glossary.md explains the terms.
package report
