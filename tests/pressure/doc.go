// Package pressure checks the totals in memory.pressure. It lets unmodified programs wait and run under the real
// daemon, on the simulated driver. It notes a time before and after each wait begins, and before and after the wait
// ends. From these times it computes the interval in which each total must lie.
package pressure
