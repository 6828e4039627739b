// Package readme runs the commands of README.md, docs/tour.md and docs/admin/ci.md as written, and compares what they
// print with the transcript. It also lists, for the commands of each other page, the test that runs them.
package readme
