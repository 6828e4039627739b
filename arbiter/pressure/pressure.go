package pressure

import "time"

// Step is the time between two samples of the averages, as in the kernel (PSI_FREQ in kernel/sched/psi.c).
const Step = 2 * time.Second

// Averages are fixed-point numbers of percent with fracBits bits behind the point, as the kernel's load averages are
// (FSHIFT in include/linux/sched/loadavg.h).
const (
	fracBits = 11
	one      = 1 << fracBits
)

// decays are what is left of an average after a step, as fixed-point numbers: exp(−2 s/10 s), exp(−2 s/60 s) and
// exp(−2 s/300 s), rounded as the kernel has them.
var decays = [...]uint32{1677, 1981, 2034}

// Averages is how many averages there are.
const Averages = len(decays)

// Tracker keeps the two states of one thing. The zero Tracker has seen nothing; it is a value, and a copy goes on by
// itself.
type Tracker struct {
	some, full stall
	at         time.Time // up to when all is counted; zero: nothing was
	next       time.Time // when the next sample of the averages is due
}

// stall is one state: whether it holds, for how long it did, and the averages.
type stall struct {
	on      bool
	total   time.Duration
	sampled time.Duration // total at the last sample
	average [Averages]uint32
}

// Values is what a Tracker shows.
type Values struct{ Some, Full Line }

// Line is a state's part of the Values. Averages are hundredths of a percent, over 10, 60 and 300 seconds.
type Line struct {
	Averages [Averages]int
	Total    time.Duration
}

// Set tells which of the states hold from now on: full implies some. Time that goes back counts as none.
func (t *Tracker) Set(now time.Time, some, full bool) {
	t.count(now)
	t.some.on, t.full.on = some, some && full
}

// At returns the values at a time. The tracker stays as it is.
func (t Tracker) At(now time.Time) Values {
	t.count(now)
	return Values{t.some.line(), t.full.line()}
}

// IsZero reports whether the tracker has seen nothing.
func (t *Tracker) IsZero() bool { return t.at.IsZero() }

// States tells which of the states hold.
func (t *Tracker) States() (some, full bool) { return t.some.on, t.full.on }

func (t *Tracker) begin(now time.Time) { t.at, t.next = now, now.Add(Step) }

// count brings the tracker up to now: to the end of the step that it is in, through the whole steps after it, which are all
// alike, and into the one that now is in.
func (t *Tracker) count(now time.Time) {
	if t.at.IsZero() {
		t.begin(now)
	}
	if late := now.Sub(t.next); late >= 0 {
		whole := late / Step
		t.pass(t.next.Add(whole * Step))
		t.some.sample(whole)
		t.full.sample(whole)
		t.next = t.next.Add((whole + 1) * Step)
	}
	t.pass(now)
}

// pass lets time go by in the states that hold.
func (t *Tracker) pass(to time.Time) {
	span := to.Sub(t.at)
	if span <= 0 {
		return
	}
	t.at = to
	for _, s := range [...]*stall{&t.some, &t.full} {
		if s.on {
			s.total += span
		}
	}
}

// sample takes into the averages the step that ended, and so many whole ones after it, in which the state was as it is now.
func (s *stall) sample(whole time.Duration) {
	held, after := s.total-s.sampled, uint32(0)
	if s.on {
		held -= whole * Step
		after = percent(Step)
	}
	first := percent(held)
	for i, decay := range decays {
		s.average[i] = decayed(s.average[i], decay, first)
		for range whole {
			was := s.average[i]
			if s.average[i] = decayed(was, decay, after); s.average[i] == was {
				break // and stays so: after an hour all do
			}
		}
	}
	s.sampled = s.total
}

// percent is how much of a step a state held, as a fixed-point number of whole percents.
func percent(held time.Duration) uint32 { return uint32(held*100/Step) * one }

// decayed is the average after a step in which the state held so much. Rising averages are rounded up, so that they
// come to 100 % (calc_load in include/linux/sched/loadavg.h).
func decayed(average, decay, active uint32) uint32 {
	sum := uint64(average)*uint64(decay) + uint64(active)*uint64(one-decay)
	if active >= average {
		sum += one - 1
	}
	return uint32(sum / one)
}

func (s *stall) line() Line {
	l := Line{Total: s.total}
	for i, a := range s.average {
		l.Averages[i] = int(a>>fracBits)*100 + int(a&(one-1)*100>>fracBits)
	}
	return l
}
