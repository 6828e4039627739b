// Package rows has what the processes around the history agree on: the lines of JSON that the daemon writes to the history's process, and
// the questions and answers of readers. Package archive keeps the rows; the command gpuarb reads them and must not link the store.
//
// Files, from the bottom up: program.go says which commands count as one program, rows.go has the lines of the daemon, questions.go those of
// readers, and client.go asks.
package rows
