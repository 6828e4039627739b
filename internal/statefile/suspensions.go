package statefile

// This file has the record of a job that was asked to give its memory back (arbiter/suspend.go). tablefile.go opens the file that holds
// these records; daemon/suspensions.go writes and reads them.

import (
	"bytes"
	"unsafe"
)

// suspensionsMagic is "GABSUSP" in memory.
const suspensionsMagic = 0x50535553424147

var suspensionsFile = tableFile{suffix: ".suspensions", what: "suspended jobs", magic: suspensionsMagic, row: unsafe.Sizeof(Suspension{}), most: MaxSuspensions}

// Sizes of the table and of its records.
const (
	MaxSuspensions = 512  // twice the jobs that can have one, because a new record is written before the old one is freed
	MaxSuspendedOn = 64   // devices of a suspended job
	factsSize      = 2560 // facts of a process
)

// Suspension is the record of a job that was asked to give its memory back. A record is never changed after it is committed: a new record
// with a higher Serial replaces it. Times are uptimes in nanoseconds, as in Ticket; 0: never.
type Suspension struct {
	Live     uint32
	State    uint32 // number of the job's residence in daemon/suspensions.go
	Serial   uint64
	Job      uint64
	Key      [8]byte // key of a job of `gpuarb run` or of a cgroup; zero: the job is one process, which Facts tells
	Flags    uint32
	Failures uint32 // number of times in a row that the job gave nothing
	Asked    int64  // beginning of State
	Resumed  int64
	NotUntil int64
	Arrival  uint64 // place of the request with which the job returns, as in Ticket; 0: no such request waits
	Since    int64
	Devices  uint32 // number of valid entries in On
	Pad      uint32
	On       [MaxSuspendedOn]SuspendedOn
	Unit     [256]byte // systemd unit of its processes, NUL-padded
	Facts    [factsSize]byte
}

// Bits of Suspension.Flags.
const (
	SuspendedByUnit = 1 << 0 // its unit was stopped; else its hook was run
	SuspendAnswered = 1 << 1 // the hook has ended, or the unit has stopped or started
)

// SuspendedOn are the amounts that a job held on a device when it was asked to give its memory back. UUID identifies the device if it has one, else Index.
type SuspendedOn struct {
	UUID     [16]byte
	Index    uint32
	Contexts uint32
	Bytes    uint64
	Overhead uint64 // bytes beside Bytes, by the device's figures
}

// SetUnit stores the name of the unit. It returns false if the name is too long.
func (s *Suspension) SetUnit(name string) bool {
	s.Unit = [len(s.Unit)]byte{}
	return copy(s.Unit[:len(s.Unit)-1], name) == len(name)
}

// UnitOf returns the name of the unit; "": none.
func (s *Suspension) UnitOf() string {
	name, _, _ := bytes.Cut(s.Unit[:], []byte{0})
	return string(name)
}

// SetFacts stores the facts of the job's process, as JSON. It returns false if they are too long.
func (s *Suspension) SetFacts(facts []byte) bool {
	s.Facts = [factsSize]byte{}
	return copy(s.Facts[:factsSize-1], facts) == len(facts)
}

// FactsOf returns the facts of the job's process.
func (s *Suspension) FactsOf() []byte {
	facts, _, _ := bytes.Cut(s.Facts[:], []byte{0})
	return facts
}
