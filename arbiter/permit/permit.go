package permit

import "iter"

// This file has the kinds of permits, and the sets of their owners. permits.go of package arbiter grants and revokes permits.

// Kind is a kind of permit.
type Kind int

// Kinds of permits. A new kind needs a line here, and a row in conflicts if it excludes another kind. In package arbiter, a field of
// JobRequest asks for it, job.asks lists it together with Slot, device.caps limits it, and Arbiter.releaseKept deletes it. An owner has a
// permit of another kind only together with a Slot, because the arbiter finds owners by their slots.
const (
	Slot  Kind = iota // permission to have work running
	Claim             // claim of the device
	Sole              // sole use of the device
	Count             // number of kinds
)

// conflicts lists for each kind the kinds that no other job may have at the same time.
var conflicts = [Count]Kinds{
	Slot: {Sole: true},
	Sole: {Slot: true},
}

// Kinds is a set of kinds of permits.
type Kinds [Count]bool

// Caps is the largest number of permits of each kind; 0: no limit.
type Caps [Count]int

// None is yielded by Limits for a kind that no other job may have.
const None = 0

// Limits yields the kinds of which too many permits can refuse a request for ks, each with the largest number allowed, or None. A waiting
// request blocks later requests for these kinds.
func (ks Kinds) Limits(caps Caps) iter.Seq2[Kind, int] {
	return func(yield func(Kind, int) bool) {
		for k := range Count {
			most := -1
			if ks[k] && caps[k] > 0 {
				most = caps[k]
			}
			for asked, asks := range ks {
				if asks && conflicts[asked][k] {
					most = None
				}
			}
			if most >= 0 && !yield(k, most) {
				return
			}
		}
	}
}

// Key is the owner of a permit: a job, a process or a thread.
type Key[J, P comparable] struct {
	Job     J
	Process P      // zero: the job owns the permit
	Thread  uint32 // 0: the process or job owns the permit, or the thread is unknown
}

// Sets has the owners of permits of each kind, with a value for each. The zero Sets is empty.
type Sets[J, P comparable, H any] [Count]map[Key[J, P]]H

// Full reports whether a job can get no further permits of these kinds.
func (s *Sets[J, P, H]) Full(job J, asks Kinds, caps Caps) bool {
	for k, most := range asks.Limits(caps) {
		if most == None && s.HeldByOthers(k, job) || most != None && len(s[k]) >= most {
			return true
		}
	}
	return false
}

// HeldByOthers reports whether another job, or a process or thread of another job, has a permit of a kind.
func (s *Sets[J, P, H]) HeldByOthers(k Kind, job J) bool {
	for key := range s[k] {
		if key.Job != job {
			return true
		}
	}
	return false
}

// Grant grants an owner permits of these kinds, in addition to those that it has.
func (s *Sets[J, P, H]) Grant(key Key[J, P], kinds Kinds, h H) {
	for k, granted := range kinds {
		if granted && s[k] == nil {
			s[k] = make(map[Key[J, P]]H)
		}
		if granted {
			s[k][key] = h
		}
	}
}

// Revoke revokes all permits of an owner.
func (s *Sets[J, P, H]) Revoke(key Key[J, P]) {
	for _, set := range s {
		delete(set, key)
	}
}
