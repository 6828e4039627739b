// Package rows defines the protocols of the history's process: the lines of JSON that the daemon exchanges with it, and the questions and
// answers of readers. Package archive keeps the rows. The command gpuarb links this package, but not the store with its SQLite.
//
// Files, from the bottom up: program.go says which commands count as one program, rows.go has the lines of the daemon, questions.go those of
// readers, and client.go asks.
package rows
