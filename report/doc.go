// Package report spells a snapshot of the ledger as text: the tables and values
// that the filesystem and the command line show. Both print the same bytes for
// the same snapshot, because both call this package.
//
// The forms follow cgroup v2: bytes in decimal, "max" for no limit, "-" for
// nothing to say, one value or flat-keyed lines per file, a newline at the end.
// Tables have one header line and columns separated by spaces; a column never
// contains a space, except COMMAND, which is last and escaped, so that no program
// can forge a row by its name.
//
// Every function is pure: it reads its arguments, writes to its writer and keeps
// nothing. All are safe for concurrent use as long as nobody changes the snapshot.
// The only errors are those of the writer.
//
// docs/glossary.md explains the terms.
package report
