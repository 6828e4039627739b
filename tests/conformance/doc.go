// Package conformance shows the behaviours that rows.txt lists, a test or more for
// each row: the real daemon over its real socket, real programs under the real
// shim, on the simulated driver. What is right is a constant or what that driver
// counts by itself; what the daemon says is what is being tested.
package conformance
