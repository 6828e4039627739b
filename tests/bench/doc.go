// Package bench measures what the system promises to cost, on a machine of its own
// with a simulated driver: a request that must ask the daemon, alone, beside requests
// that wait and beside a hostile process, the files of the mount, starting a program under the library,
// and how soon a dead program's memory can be had again. `make bench` runs it
// together with the benchmarks of the parts; docs/development/performance.md has the goals.
package bench
