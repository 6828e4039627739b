// Package readme runs the commands of README.md and docs/admin/ci.md as they stand there and holds
// what they print against the transcript; and it knows by which test each other page's are run.
package readme
