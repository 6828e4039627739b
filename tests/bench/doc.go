// Package bench measures what gpuarb costs, on a machine of its own
// with a simulated driver: a request that must ask the daemon (alone, beside waiting requests
// and beside a hostile process), reads of the mount, the start of a program under the library,
// and the time until a dead program's memory can be allocated again. It has no oracle, because it compares
// nothing: docs/development/performance.md has the goals. `make bench` runs it
// together with the benchmarks of the other packages.
package bench
