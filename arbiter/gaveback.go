package arbiter

import "github.com/gpuarb/gpuarb/accounting"

// This file counts what jobs hold and what they gave back. headroom.go has what is reserved for their return.

// Residence returns where the memory of a job is, and what it gave back in bytes on all devices. It returns false for an unknown job.
func (a *Arbiter) Residence(id JobID) (r Residence, gave accounting.Bytes, known bool) {
	j := a.jobs[id]
	if j == nil {
		return Resident, 0, false
	}
	for _, d := range a.devices {
		gave = gave.Plus(a.gaveOn(j, d).bytes)
	}
	return j.residence(), gave, true
}

// heldOn returns what the processes of a job hold on a device, ended processes included until their memory is freed.
func (a *Arbiter) heldOn(j *job, d *device) (m memory) {
	for l := range j.leasesOn(d) {
		m.bytes = m.bytes.Plus(l.Granted().Less(a.idle(l)).Plus(l.Charged()))
		m.overhead = m.overhead.Plus(l.uncharged())
		m.contexts += l.contexts
	}
	return m
}

// gaveOn returns what a job has given back on a device since it was asked to, less what it has taken again; nothing: the job is resident.
func (a *Arbiter) gaveOn(j *job, d *device) memory {
	if j.residence() == Resident {
		return memory{}
	}
	had, has := j.suspension.had[d], a.heldOn(j, d)
	return memory{had.bytes.Less(has.bytes), had.overhead.Less(has.overhead), max(0, had.contexts-has.contexts)}
}

// gave compares what a job holds with what it held when it was asked to give its memory back. The result gave reports whether the job holds
// less on some device. The result keeps reports whether some of that memory is still held.
func (a *Arbiter) gave(j *job) (gave, keeps bool) {
	for d, had := range j.suspension.had {
		g := a.gaveOn(j, d).bytes
		gave, keeps = gave || g > 0, keeps || g < had.bytes
	}
	return gave, keeps
}

// hasTaken reports whether a job holds all that is reserved for its return: what it held when it was asked to give its memory back, or less
// if a limit was lowered meanwhile.
func (a *Arbiter) hasTaken(j *job) bool {
	for d := range j.suspension.had {
		if a.heldOn(j, d).bytes < j.wantsBack(d) {
			return false
		}
	}
	return true
}
