// Package top is the screen of `gpuarb top`: the devices with bars and a history graph, below them
// the leases as a table or as a tree of jobs, the details of one of them, and the questions that
// come before a change.
//
// A Model is a value over the last snapshot: what it draws depends on that, on the keys that came
// and on the size of the terminal alone, so that tests need neither a terminal nor a daemon. Run
// hands it to the terminal library. Everything that asks the daemon runs outside of the loop that
// draws, so that keys are answered at once when the daemon is slow or away.
//
// Only rows that are visible are spelled and drawn. What programs and users chose (commands, names
// of jobs and users, the daemon's sentences that quote them) passes report.Escape before it is drawn.
package top
