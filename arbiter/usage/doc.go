// Package usage sums what a job holds on a device over time, in byte-seconds. Its main type is Meter. It has no clock: times are arguments.
// Package arbiter has a Meter for each job and device.
package usage
