package report

// This file explains what limits a job and what its user can do. `gpuarb why` and `gpuarb top`
// print it.

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// Why is the answer of `gpuarb why` for one job.
type Why struct {
	Job         uint64                `json:"job"`
	JobName     *string               `json:"job_name"`
	PID         int                   `json:"pid"`
	UID         uint32                `json:"uid"`
	User        string                `json:"user"`
	Command     string                `json:"command"`
	Left        *string               `json:"still_runs"` // null: the command still runs
	AgeMs       int64                 `json:"age_ms"`
	Rule        string                `json:"rule"`
	Pressure    figures.PressureState `json:"pressure"`
	Residence   *string               `json:"residence"` // null: the job has its memory
	ResidenceMs *int64                `json:"residence_ms"`
	Failure     *string               `json:"residence_failure"` // null: its hook or unit did not fail
	Devices     []WhyDevice           `json:"devices"`
	Waits       []Wait                `json:"waits"`
	Denial      *string               `json:"denial"`
	Denied      *int64                `json:"denial_age_ms"`
	Advice      []string              `json:"advice"`
}

// WhyDevice has the limits of a job on one device, and the other holders of the device.
type WhyDevice struct {
	Device     Index             `json:"device"`
	Vendor     string            `json:"vendor"`
	State      string            `json:"device_state"`
	Lease      *string           `json:"lease_state"`
	Used       accounting.Bytes  `json:"used_bytes"`
	Max        *accounting.Bytes `json:"max_bytes"`
	MaxBy      *string           `json:"max_by"`
	Reserved   accounting.Bytes  `json:"reserved_bytes"`
	Suspended  accounting.Bytes  `json:"suspended_bytes"` // given back while the job is suspended
	Charged    accounting.Bytes  `json:"unmanaged_bytes"` // what Unmanaged uses of the budget
	Shared     *string           `json:"shared_budget"`
	SharedUsed *accounting.Bytes `json:"shared_used_bytes"`
	SharedMax  *accounting.Bytes `json:"shared_max_bytes"`
	SharedFree *accounting.Bytes `json:"shared_free_bytes"`
	SharedBy   *string           `json:"shared_max_by"`
	Free       accounting.Bytes  `json:"free_bytes"`
	Capacity   accounting.Bytes  `json:"capacity_bytes"`
	SlotsMax   *int              `json:"slots_max"`
	Slots      int               `json:"slots_current"`
	Holders    []DeviceHolder    `json:"holders"`
	Unmanaged  []UnmanagedHolder `json:"unmanaged"` // processes of the job that use the device without the library
	Idle       []IdleHolder      `json:"idle"`      // processes that hold memory and do nothing, if the job waits for memory there
	Wall
}

// called returns the name of the device for users.
func (d *WhyDevice) called() string {
	return accounting.DeviceName(int(d.Device), d.Vendor == accounting.VendorCPU)
}

// Whys explains the wanted jobs, sorted by number.
func Whys(s figures.Snapshot, wanted func(figures.JobState) bool) []Why {
	f := indexJobs(s)
	all := []Why{}
	for _, j := range s.Jobs {
		if !wanted(j) {
			continue
		}
		w := Why{Job: j.ID, JobName: Unless(j.Name, ""), PID: j.PID, UID: j.UID, User: j.User, Command: j.Command, Left: Unless(j.StillRuns, ""), AgeMs: j.AgeMs, Rule: j.Rule, Pressure: j.Pressure,
			Devices: []WhyDevice{}, Waits: []Wait{}, Advice: []string{}}
		for _, on := range j.Devices {
			_, leased := f.leases[jobDevice{j.ID, on.Device}]
			waits := slices.ContainsFunc(f.waits[j.ID], func(t figures.TicketState) bool { return t.Device == on.Device })
			device := whyDevice(s, j.ID, on)
			if slices.ContainsFunc(f.waits[j.ID], func(t figures.TicketState) bool { return t.WantsBytes > 0 && (t.Device < 0 || t.Device == on.Device) }) {
				device.Idle = idleHolders(s, on.Device)
			}
			if leased || waits || on.Reserved > 0 || len(j.Devices) == 1 || on.Suspended > 0 || len(device.Unmanaged) > 0 || device.DriverMax != nil || device.DriverFail != nil {
				w.Devices = append(w.Devices, device)
			}
		}
		if w.Residence = Unless(string(j.Residence), ""); w.Residence != nil {
			w.ResidenceMs, w.Failure = &j.ResidenceMs, Unless(j.Failure, "")
		}
		if w.Denial = Unless(j.Denial, ""); w.Denial != nil {
			w.Denied = &j.DenialMs
		}
		for _, t := range f.waits[j.ID] {
			w.Waits = append(w.Waits, waitOf(t))
			w.Advice = append(w.Advice, adviceFor(s, t))
		}
		w.Advice = slices.Compact(slices.Concat(w.Advice, w.returns(), w.lost(), w.overBudget(), w.leftBehind()))
		all = append(all, w)
	}
	return all
}

func whyDevice(s figures.Snapshot, job uint64, on figures.JobDeviceState) WhyDevice {
	w := WhyDevice{Device: Index(on.Device), Used: on.Used, Max: Unless(on.Max, accounting.Max), MaxBy: Unless(on.MaxBy, ""),
		Reserved: on.Reserved, Suspended: on.Suspended, Charged: on.Unmanaged, Holders: []DeviceHolder{}, Unmanaged: []UnmanagedHolder{}, Idle: []IdleHolder{}, Wall: wallOf(&on)}
	if w.Max == nil {
		w.MaxBy = nil
	}
	if d := s.Device(on.Device); d != nil {
		w.State = DeviceState(*d)
		w.Vendor, w.Free, w.Capacity, w.SlotsMax, w.Slots = d.Vendor, d.Capacity.Less(d.Committed), d.Capacity, Unless(d.SlotsMax, 0), d.SlotsCurrent
		for _, h := range d.Owners() {
			if h.Job != job {
				w.Holders = append(w.Holders, deviceHolder(h))
			}
		}
		for _, u := range d.UnmanagedBy {
			if u.Job == job {
				w.Unmanaged = append(w.Unmanaged, unmanagedBy(u))
			}
		}
	}
	w.Lease = leaseState(s, job, on.Device)
	left := accounting.Max
	for _, b := range s.Budgets {
		for _, at := range b.Devices {
			if at.Device == on.Device && slices.Contains(b.Jobs, job) && (w.Shared == nil || at.Free < left) {
				left = at.Free // of several shared budgets, the one with least free memory counts
				w.Shared, w.SharedUsed, w.SharedBy = &b.Name, &at.Used, Unless(at.MaxBy, "")
				w.SharedMax, w.SharedFree = Unless(at.Max, accounting.Max), Unless(at.Free, accounting.Max)
			}
		}
	}
	return w
}

// leaseState returns the state of a lease of the job on a device; a lost lease comes first. nil: no
// lease.
func leaseState(s figures.Snapshot, job uint64, device int) (state *string) {
	for _, l := range s.Leases {
		if l.Job == job && l.Device == device && (state == nil || l.State == figures.StateLost) {
			state = Unless(string(l.State), "")
		}
	}
	return state
}

// isLost reports whether the job's memory on the device is lost.
func (d *WhyDevice) isLost() bool {
	return d.State == string(figures.StateLost) || d.Lease != nil && *d.Lease == string(figures.StateLost)
}

// lost says what can be done about devices that fell off the bus.
func (w Why) lost() (advice []string) {
	for _, d := range w.Devices {
		switch {
		case d.State == string(figures.StateLost):
			advice = append(advice, fmt.Sprintf("start it again on another device (`gpuarb run --device any`); for %s see dmesg (Xid messages): it may need a reset or a restart of the machine", d.called()))
		case d.isLost():
			advice = append(advice, "start it again: the device is back, but a program that was on it cannot use it any more")
		}
	}
	return advice
}

// adviceFor says what can be done about a waiting request.
func adviceFor(s figures.Snapshot, t figures.TicketState) string {
	const giveUp = "or give up with `gpuarb queue cancel %d`"
	if t.RoomOn != nil {
		if d := s.Device(*t.RoomOn); d != nil {
			return fmt.Sprintf("%s has %s free: `gpuarb run --device %d`, or `--device emptiest`; give up here with `gpuarb queue cancel %d`",
				s.Called(d.Index), d.Free.Human(), d.Index, t.Ticket)
		}
	}
	reason := t.Reason
	if t.Kept > 0 {
		reason = ""
	}
	what := map[string]string{
		"device_full": "it goes on when the holders that it names free memory: ask their users, ",
		"shared_full": "it goes on when the programs that share its budget free memory: end one of them, ",
		"slots":       "it goes on when a holder that it names ends: ask its user, ",
	}[reason]
	if what == "" {
		what = "it goes on when those before it have been served: `gpuarb queue` lists them, "
	}
	return fmt.Sprintf(what+giveUp, t.Ticket)
}

// overBudget says what can be done if the job's own budget limits it.
func (w Why) overBudget() (advice []string) {
	for _, d := range w.Devices {
		used := d.Used.Plus(d.Charged)
		if d.isLost() || d.Max == nil || *d.Max > used.Plus(*d.Max/8) || len(w.Waits) > 0 {
			continue // at least an eighth is left
		}
		// With sudo, gpuarb asks the system's daemon, which does not know the jobs of a user's own
		// daemon.
		how := fmt.Sprintf("`gpuarb limit --job %d memory.max=SIZE` raises it (with sudo, where the daemon is the system's)", w.Job)
		if d.MaxBy != nil && strings.Contains(*d.MaxBy, "--memory") {
			how = "start it with more --memory, or " + how
		}
		is := "is nearly used up, and what it asks for beyond that is refused"
		switch {
		case used > *d.Max:
			is = fmt.Sprintf("is exceeded (%s of %s), and it gets nothing new until it is under", used.Human(), d.Max.Human())
		case used == *d.Max:
			is = "is used up, and what it asks for beyond that is refused"
		}
		advice = append(advice, fmt.Sprintf("its own budget on %s %s: %s", d.called(), is, how))
	}
	return advice
}

// leftBehind says how to free what is reserved for a job whose command has ended.
func (w Why) leftBehind() []string {
	if w.Left == nil || !slices.ContainsFunc(w.Devices, func(d WhyDevice) bool { return d.Reserved > 0 }) {
		return nil
	}
	return []string{fmt.Sprintf("its command has ended, and what it left behind keeps the reservation: `gpuarb limit --job %d memory.min=0` gives it back", w.Job)}
}

// WriteWhy writes the explanations for users.
func WriteWhy(w io.Writer, all []Why) error {
	out := bufio.NewWriter(w)
	style := Style{Human: true}
	for _, y := range all {
		name := ""
		if y.JobName != nil {
			name = " (" + line(*y.JobName) + ")"
		}
		fmt.Fprintf(out, "job %d%s: %s's %s%s, PID %d, for %s, under %s\n", y.Job, name, line(y.User), line(y.Command), stillRuns(y.Left), y.PID, style.span(y.AgeMs), line(y.Rule))
		writeResidence(out, y)
		for _, d := range y.Devices {
			writeWhyDevice(out, d)
		}
		for _, t := range y.Waits {
			fmt.Fprintf(out, "  for %s it %s\n", style.span(t.WaitedMs), Escape(t.Text))
		}
		if len(y.Waits) == 0 {
			fmt.Fprintln(out, "  it waits for nothing")
		}
		if y.Denial != nil {
			fmt.Fprintf(out, "  last refused %s ago: %s\n", style.span(*y.Denied), Escape(*y.Denial))
		}
		for _, a := range y.Advice {
			fmt.Fprintf(out, "  → %s\n", a)
		}
	}
	return out.Flush()
}

// residences say what the residence of a job means, after "for 5min it ".
var residences = map[figures.Residence]string{
	figures.Suspending: "is asked to give its memory back",
	figures.Suspended:  "is suspended: it gave memory back, which others may use",
	figures.Resuming:   "is asked to take its memory again, which is reserved for it",
	figures.Stuck:      "is stuck: it did not take its memory again, which stays reserved for it",
}

// writeResidence writes where the memory of a job is, if the job was asked to give it back.
func writeResidence(out io.Writer, y Why) {
	if y.Residence == nil {
		return
	}
	fmt.Fprintf(out, "  for %s it %s", Style{Human: true}.span(*y.ResidenceMs), cmp.Or(residences[figures.Residence(*y.Residence)], "is "+line(*y.Residence)))
	if y.Failure != nil {
		fmt.Fprintf(out, " (%s)", Escape(*y.Failure))
	}
	fmt.Fprintln(out)
}

// returns says how a suspended or stuck job gets its memory again.
func (w Why) returns() []string {
	switch figures.Residence(orZero(w.Residence)) {
	case figures.Suspended:
		if !slices.ContainsFunc(w.Waits, func(t Wait) bool { return t.Returns }) {
			return []string{fmt.Sprintf("`gpuarb resume %d` lets it take its memory again as soon as there is room", w.Job)}
		}
	case figures.Stuck:
		return []string{fmt.Sprintf("`gpuarb resume %d` asks it once more; `gpuarb suspend %d` gives up what is reserved for it", w.Job, w.Job)}
	}
	return nil
}

// writeExceeded writes a shared budget of which more is held than its limit.
func writeExceeded(out io.Writer, d WhyDevice) {
	holders := "the programs under " + *d.Shared
	if user, ok := strings.CutPrefix(*d.Shared, "all programs of user "); ok {
		holders = user + "'s programs"
	} else if user, ok := strings.CutPrefix(*d.Shared, "user "); ok {
		holders = user + "'s programs"
	} else if strings.HasPrefix(*d.Shared, "all programs") {
		holders = *d.Shared
	}
	fmt.Fprintf(out, "; %s hold %s of a limit of %s", Escape(holders), d.SharedUsed.Human(), d.SharedMax.Human())
	if d.SharedBy != nil {
		fmt.Fprintf(out, " (by %s)", Escape(*d.SharedBy))
	}
	fmt.Fprintf(out, ": nothing new until %s are freed", d.SharedUsed.Less(*d.SharedMax).Human())
}

// writeHeldBy writes who holds the budget of a cgroup's job.
func writeHeldBy(out io.Writer, d WhyDevice) {
	if d.HeldBy == nil || d.Max == nil {
		return
	}
	fmt.Fprint(out, "         the library holds the budget")
	switch {
	case d.DriverFail != nil:
		fmt.Fprintf(out, ", and the kernel or the driver does not: %s", Escape(*d.DriverFail))
	case d.other() != "" && d.DriverMax != nil:
		fmt.Fprintf(out, ", and the %s holds all programs of the cgroup to %s", Escape(d.other()), d.DriverMax.Human())
	default:
		fmt.Fprint(out, " alone")
	}
	fmt.Fprintln(out)
}

func writeWhyDevice(out io.Writer, d WhyDevice) {
	if d.isLost() {
		now := "is lost"
		if d.State != string(figures.StateLost) {
			now = "is back"
		}
		fmt.Fprintf(out, "  %s: it fell off the bus and %s; what the program had there is gone, and its calls there fail\n", d.called(), now)
		return
	}
	fmt.Fprintf(out, "  %s: uses %s", d.called(), d.Used.Human())
	if d.Max != nil {
		fmt.Fprintf(out, " of its budget of %s", d.Max.Human())
	}
	if d.MaxBy != nil {
		fmt.Fprintf(out, " (by %s)", Escape(*d.MaxBy))
	}
	if d.Charged > 0 {
		fmt.Fprintf(out, "; %s of that budget are taken without the library", d.Charged.Human())
	}
	if d.Reserved > 0 {
		fmt.Fprintf(out, "; %s are reserved for it", d.Reserved.Human())
	}
	if d.Suspended > 0 {
		fmt.Fprintf(out, "; it gave %s back", d.Suspended.Human())
	}
	if d.Shared != nil && d.SharedMax != nil && *d.SharedUsed > *d.SharedMax {
		writeExceeded(out, d)
	} else if d.Shared != nil {
		fmt.Fprintf(out, "; with others it shares the budget of %s: %s", Escape(*d.Shared), d.SharedUsed.Human())
		if d.SharedMax != nil {
			fmt.Fprintf(out, " of %s", d.SharedMax.Human())
		}
		fmt.Fprint(out, " are used")
		if d.SharedBy != nil {
			fmt.Fprintf(out, " (by %s)", Escape(*d.SharedBy))
		}
		if d.SharedFree != nil {
			fmt.Fprintf(out, ", %s are free", d.SharedFree.Human())
		}
	}
	what := "GPU"
	if d.Vendor == accounting.VendorCPU {
		what = "processor"
	}
	fmt.Fprintf(out, "; the %s has %s free of %s", what, d.Free.Human(), d.Capacity.Human())
	if d.SlotsMax != nil {
		fmt.Fprintf(out, ", and %d of %d slots are taken", d.Slots, *d.SlotsMax)
	}
	fmt.Fprintln(out)
	writeHeldBy(out, d)
	for _, u := range d.Unmanaged {
		counts := "outside the budget: no limit holds for it"
		if u.Charged {
			counts = "of the budget: no limit holds for it, and the job's other programs get so much less"
		}
		fmt.Fprintf(out, "         %s[%d] runs %s and uses %s there %s\n", Escape(program(u.Command)), u.PID,
			figures.Bypass(orZero(u.Bypass)).Without(), u.Used.Human(), counts)
	}
	for _, h := range d.Holders {
		fmt.Fprintf(out, "         %s's %s[%d] has it (%s) for %s\n", Escape(h.User), Escape(cmp.Or(orZero(h.JobName), program(h.Command))), h.PID, h.Kind, Style{Human: true}.span(h.AgeMs))
	}
	writeIdle(out, d.Idle)
}
