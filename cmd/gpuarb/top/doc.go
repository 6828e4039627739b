// Package top is the screen of `gpuarb top`. It shows the devices with bars and a history graph,
// and below them the leases as a table or as a tree of jobs. It also shows the details of a row,
// and asks before each change. cmd/gpuarb calls Run and Once.
//
// The main type is Model. Its drawing depends only on the last snapshot, the keys and the size of
// the terminal, so tests need neither a terminal nor a daemon. Run hands the Model to the terminal
// library, which calls it from one goroutine. Questions to the daemon run outside of that
// goroutine, so that keys are handled at once while the daemon is slow or does not answer.
//
// Only visible rows are formatted and drawn. Text that programs and users choose passes
// report.Escape before it is drawn: commands, names of jobs and users, and sentences of the daemon
// that quote them. The package decides nothing: the daemon checks every change.
package top
