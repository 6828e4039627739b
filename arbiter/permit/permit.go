package permit

import "iter"

// Kind is what a permit is for.
type Kind int

// The kinds of permits. A new one is a line here, and a row in bars where it does not go together with another one.
const (
	Slot  Kind = iota // to have work running
	Claim             // to be the one who claims the device
	Sole              // to have it alone
	Count             // of kinds
)

// conflicts are the kinds that nobody else may have for somebody to be given one.
var conflicts = [Count]Kinds{
	Slot: {Sole: true},
	Sole: {Slot: true},
}

// Kinds are those that somebody asks for.
type Kinds [Count]bool

// Caps are how many permits of each kind there are; 0: as many as are asked for.
type Caps [Count]int

// None is the limit of a kind that nobody else may have.
const None = 0

// Limits yields the kinds that can be in the way of who asks for these, and how many permits of each there may be with his;
// or None. He waits for those who have one, and who comes later and asks for one is not let in before him.
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

// Key says whose a permit is: a job's, a process's or a thread's.
type Key[J, P comparable] struct {
	Job     J
	Process P      // zero: the job's
	Thread  uint32 // 0: the process's, or a thread that is not known
}

// Sets are those who have permits of a device, of each kind, with what is kept of each of them. The zero Sets are empty.
type Sets[J, P comparable, H any] [Count]map[Key[J, P]]H

// Full reports whether there is no room for one more of a job's.
func (s *Sets[J, P, H]) Full(job J, asks Kinds, caps Caps) bool {
	for k, most := range asks.Limits(caps) {
		if most == None && s.Others(k, job) || most != None && len(s[k]) >= most {
			return true
		}
	}
	return false
}

// Others reports whether anybody but a job, and what is the job's, has a permit of a kind.
func (s *Sets[J, P, H]) Others(k Kind, job J) bool {
	for key := range s[k] {
		if key.Job != job {
			return true
		}
	}
	return false
}

// Enter gives somebody permits of these kinds, beside those that it has.
func (s *Sets[J, P, H]) Enter(key Key[J, P], kinds Kinds, h H) {
	for k, given := range kinds {
		if given && s[k] == nil {
			s[k] = make(map[Key[J, P]]H)
		}
		if given {
			s[k][key] = h
		}
	}
}

// Leave takes all permits of somebody back.
func (s *Sets[J, P, H]) Leave(key Key[J, P]) {
	for _, set := range s {
		delete(set, key)
	}
}
