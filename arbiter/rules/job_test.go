package rules

import (
	"errors"
	"testing"

	"github.com/gpuarb/gpuarb/accounting"
)

// Of several limits for one job (a rule's, a flag's, a program's, a user's, root's) the last allowed one is in force, and users see its
// source. limits_test.go of package arbiter tests the effect on clients.

const (
	owner   = 1000
	program = "GPUARB_MEMORY, in the program's environment"
	flag    = "gpuarb run --memory"
)

func size(n accounting.Bytes) *accounting.Size { return &accounting.Size{Bytes: n} }

// card is a device of 1000 bytes. At most 900 can be reserved, because a context needs the other 100.
var card = Bounds{Device: 0, Total: 1000, Reservable: 900}

// set is a job with its rule, the limits that it asked for, and live changes, in that order.
type set struct {
	scope         Scope
	ruleMin, rule accounting.Bytes
	asked         Request
	program       *accounting.Size // what the process asks for itself
	live          []Change         // live limits of the job
	own           []Change         // live limits of the process
}

// TestLastAllowedLimitCounts: for a job and for its process, the last change that is allowed counts, and its source is shown.
func TestLastAllowedLimitCounts(t *testing.T) {
	root := func(n accounting.Bytes) Change { return Change{Max: size(n)} }
	his := func(n accounting.Bytes) Change { return Change{Max: size(n), UID: owner} }
	const none = accounting.Max
	for name, c := range map[string]struct {
		set
		job, process     accounting.Bytes
		jobBy, processBy string
		jobMin           accounting.Bytes
	}{
		"a rule's is the job's":              {set{rule: 500, ruleMin: 100}, 500, none, "the rule", "", 100},
		"or each process's":                  {set{scope: ScopeProcess, rule: 500, ruleMin: 100}, none, 500, "", "the rule", 0},
		"a rule reserves no more than can":   {set{rule: 1000, ruleMin: 950}, 1000, none, "the rule", "", 900},
		"and nothing on a small device":      {set{rule: 1000, ruleMin: 1001}, 1000, none, "the rule", "", 0},
		"a flag lowers":                      {set{rule: 500, asked: Request{Max: size(400)}}, 400, none, flag, "", 0},
		"and does not raise":                 {set{rule: 500, asked: Request{Max: size(600)}}, 500, none, "the rule", "", 0},
		"root's raises":                      {set{rule: 500, asked: Request{Max: size(600), MayPass: true}}, 600, none, flag, "", 0},
		"for each process":                   {set{rule: 500, asked: Request{Max: size(400), PerProcess: true}}, 500, 400, "the rule", flag, 0},
		"a program lowers its own":           {set{rule: 500, program: size(300)}, 500, 300, "the rule", program, 0},
		"the owner lowers":                   {set{rule: 500, live: []Change{his(200)}}, 200, none, "bob", "", 0},
		"and is held to the rule":            {set{rule: 500, live: []Change{his(700)}}, 500, none, "bob", "", 0},
		"root raises":                        {set{rule: 500, live: []Change{root(700)}}, 700, none, "root", "", 0},
		"and the owner up to that":           {set{rule: 500, live: []Change{root(700), his(650)}}, 650, none, "bob", "", 0},
		"root's later word takes his":        {set{rule: 500, live: []Change{his(100), root(700)}}, 700, none, "root", "", 0},
		"root's word on one device too":      {set{rule: 500, live: []Change{{Device: AllDevices, Max: size(100), UID: owner}, {Max: size(700)}}}, 700, none, "root", "", 0},
		"and his on another stays":           {set{rule: 500, live: []Change{{Device: AllDevices, Max: size(100), UID: owner}, {Device: 1, Max: size(700)}}}, 100, none, "bob", "", 0},
		"that of one device before all's":    {set{rule: 500, live: []Change{{Device: AllDevices, Max: size(300)}, {Device: 1, Max: size(200)}}}, 300, none, "root", "", 0},
		"of a job of processes, theirs":      {set{scope: ScopeProcess, rule: 500, live: []Change{root(700)}}, none, 700, "", "root", 0},
		"of the process alone":               {set{rule: 500, own: []Change{root(50)}}, 500, 50, "the rule", "root", 0},
		"never more than the device":         {set{rule: 500, live: []Change{root(5000)}}, 1000, none, "root", "", 0},
		"from a page nothing rises":          {set{rule: 500, live: []Change{{Max: size(700), UID: owner, Lowers: true}}}, 500, none, "the rule", "", 0},
		"and a reservation may be taken off": {set{rule: 500, ruleMin: 100, live: []Change{{Min: size(0), UID: owner}}}, 500, none, "the rule", "", 0},
	} {
		if c.scope == "" {
			c.scope = ScopeJob
		}
		j := &Job{Rule: &Terms{Settings: Settings{Scope: c.scope, Min: *size(c.ruleMin), Max: *size(c.rule), StreamsMax: 1}, Name: "the rule"}, Asked: c.asked}
		p := &Client{Job: j, Asked: Request{Max: c.program}}
		for _, x := range c.live {
			j.Live = lay(t, j.Live, x)
		}
		for _, x := range c.own {
			p.Live = lay(t, p.Live, x)
		}
		all, one := j.Memory(card), p.Memory(card)
		if all.Max != c.job || all.MaxBy != c.jobBy || all.Min != c.jobMin || one.Max != c.process || one.MaxBy != c.processBy {
			t.Errorf("%s: the job %d by %q, %d kept, its process %d by %q; want %d by %q, %d, %d by %q", name,
				all.Max, all.MaxBy, all.Min, one.Max, one.MaxBy, c.job, c.jobBy, c.jobMin, c.process, c.processBy)
		}
	}
}

// TestAllThatMayBeHeldIsKept: memory.min=max reserves what the memory.max of the process or the job allows, also after that changes.
func TestAllThatMayBeHeldIsKept(t *testing.T) {
	all := Change{Min: &accounting.Size{Max: true}}
	for name, c := range map[string]struct {
		live, own    []Change
		job, process accounting.Bytes
	}{
		"the job's":                {[]Change{all}, nil, 500, 0},
		"the job's, lowered since": {[]Change{all, {Max: size(300)}}, nil, 300, 0},
		"a process's, of its own":  {nil, []Change{{Max: size(200)}, all}, 0, 200},
		"a process's, of its job":  {nil, []Change{all}, 0, 500},
		"and no longer":            {nil, []Change{all, {Min: size(600)}}, 0, 600},
	} {
		j := &Job{Rule: &Terms{Settings: Settings{Scope: ScopeJob, Max: *size(500), StreamsMax: 1}}}
		p := &Client{Job: j}
		for _, x := range c.live {
			if err := x.CheckMemory(j.Memory(card), card, x.UID == 0); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			j.Live = lay(t, j.Live, x)
		}
		for _, x := range c.own {
			p.Live = lay(t, p.Live, x)
		}
		if kept, of := j.Memory(card).Min, p.Memory(card).Min; kept != c.job || of != c.process {
			t.Errorf("%s: %d and %d are kept, want %d and %d", name, kept, of, c.job, c.process)
		}
	}
}

// lay adds a change by the owner or by root to earlier changes.
func lay(t *testing.T, over *Limits, c Change) *Limits {
	t.Helper()
	force, err := c.Forces(owner, "bob", "")
	if err != nil {
		t.Fatal(err)
	}
	next := &Limits{UID: owner, User: "bob"}
	if over != nil {
		next.Rows = over.Rows
	}
	next.Set(c, force)
	return next
}

// TestWhoMayChange: an owner may change a limit up to the value given by rules, root without a bound, and other users not at all.
func TestWhoMayChange(t *testing.T) {
	is := Memory{Limits: accounting.Limits{Max: 500}, most: accounting.Limits{Max: 500}}
	for name, c := range map[string]struct {
		change Change
		want   error
	}{
		"root raises":             {Change{Max: size(900)}, nil},
		"the owner lowers":        {Change{UID: owner, Max: size(1)}, nil},
		"the owner raises":        {Change{UID: owner, Max: size(501)}, ErrPermission},
		"the owner reserves":      {Change{UID: owner, Min: size(1)}, ErrPermission},
		"a stranger":              {Change{UID: owner + 1, Max: size(1)}, ErrPermission},
		"whose daemon it is":      {Change{UID: owner + 1, Privileged: true, Max: size(900)}, nil},
		"more streams":            {Change{UID: owner, Streams: new(9)}, ErrPermission},
		"no streams":              {Change{Streams: new(0)}, ErrRange},
		"a min above its max":     {Change{Min: size(600)}, ErrRange},
		"a page that asks for it": {Change{UID: owner, Max: size(900), Lowers: true}, nil},
		"a page of somebody else": {Change{Max: size(900), Lowers: true}, ErrPermission},
	} {
		force, err := c.change.Forces(owner, "bob", "")
		if err == nil {
			err = c.change.CheckStreams(Streams{Max: 8, most: 8}, force)
		}
		if err == nil {
			err = c.change.CheckMemory(is, card, force)
		}
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// TestWrongIsOneSentence: the text of an error is one sentence for users. The wrapped error is only for programs.
func TestWrongIsOneSentence(t *testing.T) {
	is := Memory{Limits: accounting.Limits{Max: 500}, most: accounting.Limits{Max: 500}}
	_, stranger := Change{UID: 65534, User: "nobody"}.Forces(owner, "bob", "bob's limit")
	_, nameless := Change{UID: 4711}.Forces(owner, "", "the limits of job 3")
	for _, c := range []struct {
		got  error
		is   error
		want string
	}{
		{stranger, ErrPermission, "only bob or root may change bob's limit; you are nobody"},
		{nameless, ErrPermission, "only user 1000 or root may change the limits of job 3; you are user 4711"},
		{Change{Streams: new(0)}.CheckStreams(Streams{}, true), ErrRange, "streams.max of 0 is too low: 1 is the least"},
		{Change{Min: size(600)}.CheckMemory(is, card, true), ErrRange, "memory.min of 600 bytes is more than the memory.max of 500 bytes on GPU 0"},
		{Change{Max: size(501)}.CheckMemory(is, card, false), ErrPermission,
			"memory.max of 501 bytes is above the 500 bytes that is allowed on GPU 0, and only root may raise it beyond that"},
		{CheckCgroup("/a/../b"), ErrRange, `"/a/../b" is no path of a cgroup, which has neither . nor .. in it`},
		{CheckCgroup("/."), ErrRange, `"/." is no path of a cgroup, which has neither . nor .. in it`},
		{CheckCgroup("/a/"), ErrRange, `"/a/" is no path of a cgroup, which begins with a slash and has none at its end, nor two in a row`},
		{CheckCgroup("/a/...b"), nil, ""},
	} {
		if !errors.Is(c.got, c.is) || c.is != nil && c.got.Error() != c.want {
			t.Errorf("%v, want %s", c.got, c.want)
		}
	}
}
