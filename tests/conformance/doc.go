// Package conformance shows the behaviours that rows.txt lists, with at least one test for
// each row. It drives the real daemon over its real socket, with real programs under the real
// shim on the simulated driver. The oracle is a constant or the count of the simulated driver,
// never what the daemon says.
package conformance
