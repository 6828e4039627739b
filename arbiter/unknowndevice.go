package arbiter

import (
	"fmt"
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// This file records devices that programs use and the daemon does not know. The daemon calls it when a client reports such a device.

// UnknownDevice records that a process uses a device that the daemon does not know, by the UUID that the driver gives. It returns the
// message for the process's user; "": the job has already had the message.
func (a *Arbiter) UnknownDevice(now time.Time, id SessionID, uuid string) string {
	s := a.sessions[id]
	if s == nil {
		return ""
	}
	counts := s.job.counts()
	if len(counts.unknown) >= maxUnknown || slices.Contains(counts.unknown, uuid) {
		return ""
	}
	counts.unknown = append(counts.unknown, uuid)
	format := wording.UnknownFree
	if s.job.run {
		format = wording.UnknownRefused
	}
	text := fmt.Sprintf(format, s.name(), uuid)
	e := Event{Time: now, Kind: EventUnknown, Device: -1, UUID: uuid, Text: text}
	e.about(s.process)
	e.in(s.job)
	a.event(e)
	return text
}
