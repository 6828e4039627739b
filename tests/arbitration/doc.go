// Package arbitration runs unmodified programs that share devices and wait for
// each other, under the real daemon. It drives queues, reservations, exclusive jobs, limits of
// users and cgroups, and deadlocks. The oracle is the simulated driver's own count.
package arbitration
