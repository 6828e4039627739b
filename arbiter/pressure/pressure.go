package pressure

import "time"

// This file has the totals and averages of pressure. pressure.go of package arbiter says which states hold.

// Step is the time between two samples of the averages, as in the kernel (PSI_FREQ in kernel/sched/psi.c).
const Step = 2 * time.Second

// Averages are fixed-point percentages with fracBits fractional bits, as the kernel's load averages are (FSHIFT in
// include/linux/sched/loadavg.h).
const (
	fracBits = 11
	one      = 1 << fracBits
)

// decays are the factors of the averages for one Step, in fixed point: exp(−2 s/10 s), exp(−2 s/60 s) and exp(−2 s/300 s), with the
// kernel's rounding.
var decays = [...]uint32{1677, 1981, 2034}

// Averages is the number of averages.
const Averages = len(decays)

// Tracker tracks the two states of one object: some (requests wait) and full (meanwhile nothing runs). The zero Tracker has seen nothing. A copy is independent.
type Tracker struct {
	some, full stall
	at         time.Time // time up to which everything is counted; zero: nothing is
	next       time.Time // time of the next sample of the averages
}

// stall is one state: whether it holds, its total time, and its averages.
type stall struct {
	on      bool
	total   time.Duration
	sampled time.Duration // total at the last sample
	average [Averages]uint32
}

// Values are the values of a Tracker at one time.
type Values struct{ Some, Full Line }

// Line is the part of one state in Values. Averages are hundredths of a percent, over 10, 60 and 300 seconds.
type Line struct {
	Averages [Averages]int
	Total    time.Duration
}

// Set sets the states that hold from now on. full has an effect only with some. A time before the last one counts as the last one.
func (t *Tracker) Set(now time.Time, some, full bool) {
	t.count(now)
	t.some.on, t.full.on = some, some && full
}

// At returns the values at a time. It does not change the tracker.
func (t Tracker) At(now time.Time) Values {
	t.count(now)
	return Values{t.some.line(), t.full.line()}
}

// IsZero reports whether the tracker has seen nothing.
func (t *Tracker) IsZero() bool { return t.at.IsZero() }

// States returns the states that hold.
func (t *Tracker) States() (some, full bool) { return t.some.on, t.full.on }

// begin starts the tracker at a time.
func (t *Tracker) begin(now time.Time) { t.at, t.next = now, now.Add(Step) }

// count advances the tracker to now: to the end of the present step, through the complete steps after it, which are equal, and into the
// step that contains now.
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

// pass adds the time since the last call to the states that hold.
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

// sample adds to the averages the step that ended, and then whole complete steps in which the state was as it is now.
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
				break // it stays so: after an hour all averages do
			}
		}
	}
	s.sampled = s.total
}

// percent returns the share of a step in which a state held, as a whole number of percent in fixed point.
func percent(held time.Duration) uint32 { return uint32(held*100/Step) * one }

// decayed returns an average after one more step with the share active. Rising averages are rounded up, so that they reach 100 % (calc_load
// in include/linux/sched/loadavg.h).
func decayed(average, decay, active uint32) uint32 {
	sum := uint64(average)*uint64(decay) + uint64(active)*uint64(one-decay)
	if active >= average {
		sum += one - 1
	}
	return uint32(sum / one)
}

// line returns the values of the state.
func (s *stall) line() Line {
	l := Line{Total: s.total}
	for i, a := range s.average {
		l.Averages[i] = int(a>>fracBits)*100 + int(a&(one-1)*100>>fracBits)
	}
	return l
}
