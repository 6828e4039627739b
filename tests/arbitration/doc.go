// Package arbitration has whole stories of programs that share devices and wait for
// each other: unmodified programs, the real daemon, the simulated driver as the judge.
package arbitration
