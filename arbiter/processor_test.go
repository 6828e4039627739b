package arbiter_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// Any program may use the processor as a device, but its job takes a slot or a reservation there at the start only if it names the
// processor, and never a claim. claims_test.go and headroom_test.go test jobs on GPUs.

// withProcessor makes a world of GPUs of 1 GiB each, followed by the processor with 64 GiB.
func withProcessor(t *testing.T, p rules.Policy, gpus int) *world {
	t.Helper()
	w := newWorld(t, p, slices.Repeat([]accounting.Bytes{gib}, gpus)...)
	w.arb.AddDevice(w.now, rules.Device{Index: gpus, Vendor: accounting.VendorCPU, Name: "A Processor", Total: 64 * gib})
	return w
}

// opened opens a job that must be open at once.
func (w *world) opened(r arbiter.JobRequest) arbiter.JobInfo {
	w.t.Helper()
	r.Process = w.process(1000, "ffmpeg")
	info, err := w.arb.OpenJob(w.now, r)
	if err != nil || info.Waiting != 0 {
		w.t.Fatalf("%+v: %+v, %v", r, info, err)
	}
	return info
}

func TestProcessorOnlyOnRequest(t *testing.T) {
	w := withProcessor(t, rules.DefaultPolicy(), 1)
	if got := w.mustClaim(arbiter.JobRequest{}); !slices.Equal(got.Devices, []int{0}) {
		t.Errorf("a claim: %+v", got)
	}
	if got := w.mustClaim(arbiter.JobRequest{}); got.Waiting == 0 {
		t.Errorf("another claim: %+v", got)
	}
	for _, r := range []arbiter.JobRequest{{Claim: true, Devices: []int{1}}, {Any: true, Devices: []int{0, 1}}} {
		if _, err := w.arb.OpenJob(w.now, r); !errors.Is(err, arbiter.ErrNoDevice) || !strings.Contains(err.Error(), "the processor is no GPU") {
			t.Errorf("%+v: %v", r, err)
		}
	}
	without := withProcessor(t, rules.DefaultPolicy(), 0)
	for _, r := range []arbiter.JobRequest{{Claim: true}, {Any: true}, {Exclusive: true}, {Min: ptr(size(gib))}} {
		if _, err := without.arb.OpenJob(without.now, r); !errors.Is(err, arbiter.ErrNoDevice) {
			t.Errorf("without a GPU, %+v: %v", r, err)
		}
	}
	if info := without.opened(arbiter.JobRequest{Max: ptr(size(100 * gib)), Min: ptr(size(0))}); info.Devices != nil || info.Budget != 0 {
		t.Errorf("without a GPU: %+v", info)
	}
}

// TestEveryJobMayUseTheProcessor: what a job takes at its start is on GPUs; if the job names the processor, on the processor only.
func TestEveryJobMayUseTheProcessor(t *testing.T) {
	policy := capped(1, "")
	policy.Defaults.Min = size(100)
	w := withProcessor(t, policy, 2)
	for name, r := range map[string]arbiter.JobRequest{"all GPUs": {Min: ptr(size(gib / 2))}, "one GPU": {Devices: []int{0}}} {
		info := w.opened(r)
		if on := w.arb.Snapshot(w.now).Devices[2]; on.SlotsCurrent != 0 || on.Committed != 0 {
			t.Errorf("%s: from its start it has %+v", name, on)
		}
		c := w.client(info.ID, 2)
		c.must(5 * gib)
		if on := w.arb.Snapshot(w.now).Devices[2]; on.SlotsCurrent != 1 || on.Used != 5*gib || on.Overhead != 0 {
			t.Errorf("%s: %+v", name, on)
		}
		w.arb.EndSession(w.now, c.session)
		w.arb.Gone(w.now, c.session, 2)
		w.arb.CloseJob(w.now, info.ID)
	}
	named := w.opened(arbiter.JobRequest{Devices: []int{2}, Min: ptr(size(gib)), Exclusive: true})
	if on := w.arb.Snapshot(w.now).Devices; on[2].Reserved != gib || on[2].ExclusiveJob != uint64(named.ID) || on[0].Reserved != 0 || named.Budget != 64*gib {
		t.Errorf("named: %+v, %+v", named, on)
	}
	s, err := w.arb.OpenSession(w.now, arbiter.SessionRequest{Process: w.process(1000, "ffmpeg"), Job: named.ID})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.arb.Attach(w.now, s.ID, 0, nil); reasonOf(err) != arbiter.ReasonDenied {
		t.Errorf("a GPU for a job on the processor: %v", err)
	}
}

// TestSharesOfTheProcessor: the processor has more memory than a GPU. A share that fits each GPU may exceed the rule there. Such a request
// is refused only if it names the processor; otherwise the rule limits it there.
func TestSharesOfTheProcessor(t *testing.T) {
	w := withProcessor(t, exact(size(gib)), 1)
	half := &accounting.Size{PerMille: 500}
	c := w.client(w.opened(arbiter.JobRequest{Max: half}).ID, 1)
	c.must(gib)
	if r := c.alloc(1); r.Granted || !strings.Contains(r.Explain, "out of memory on the processor") {
		t.Errorf("%+v", r)
	}
	named := arbiter.JobRequest{Process: w.process(1000, "ffmpeg"), Max: half, Devices: []int{1}}
	if _, err := w.arb.OpenJob(w.now, named); reasonOf(err) != arbiter.ReasonDenied {
		t.Errorf("half of the processor's memory: %v", err)
	}
}

func TestMemoryOfTheProcessorIsConfigured(t *testing.T) {
	policy := rules.DefaultPolicy()
	policy.Devices = []rules.DeviceRule{{Match: rules.DeviceMatch{Vendor: accounting.VendorCPU}, Memory: 2 * gib}}
	policy.ContextReserve, policy.ContextGuess = size(gib), size(gib)
	w := withProcessor(t, policy, 1)
	if d := w.arb.Snapshot(w.now).Devices; d[0].Total != gib || d[1].Total != 2*gib || d[1].Context != 0 || d[0].Context == 0 {
		t.Errorf("%+v", d)
	}
	c := w.client(0, 1)
	c.must(gib)
	w.arb.SetPolicy(w.now, rules.DefaultPolicy())
	if d := w.arb.Snapshot(w.now).Devices[1]; d.Total != 64*gib || d.Capacity != 64*gib || d.Used != gib || w.arb.Total(1) != 64*gib {
		t.Errorf("without it in the file: %+v", d)
	}
	if w.arb.Total(2) != 0 {
		t.Error("a device that is not there has memory")
	}
}
