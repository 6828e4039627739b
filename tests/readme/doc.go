// Package readme runs the commands of README.md and docs/ci.md as they stand there and holds
// what they print against the transcript.
package readme
