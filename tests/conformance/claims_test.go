package conformance

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file has the tests of the rows E1 to E11 of rows.txt: claims of whole devices.

// pool returns a machine with devices to claim, and a client.
func pool(t *testing.T, devices string) (*rig.Machine, *ipc.Client) {
	t.Helper()
	m := rig.New(t, rig.Options{Devices: devices, NoMount: true})
	return m, dial(t, m)
}

func dial(t *testing.T, m *rig.Machine) *ipc.Client {
	t.Helper()
	c, err := ipc.Dial(t.Context(), m.Socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// try claims devices without waiting; nil: none is free.
func try(t *testing.T, c *ipc.Client, devices ...int) *ipc.Claim {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), rig.Patience)
	defer stop()
	claim, err := c.TryClaim(ctx, ipc.ClaimRequest{Devices: devices})
	if err != nil && !errors.Is(err, ipc.ErrBusy) {
		t.Fatal(err)
	}
	return claim
}

// parked is a claim that was sent and may wait in the queue.
type parked struct {
	t    *testing.T
	done chan struct{}
	got  *ipc.Claim
	err  error
	stop context.CancelFunc
}

// park sends a claim and waits for its answer in another goroutine.
func park(t *testing.T, m *rig.Machine, as ...func(*ipc.ClaimRequest)) *parked {
	t.Helper()
	var request ipc.ClaimRequest
	for _, how := range as {
		how(&request)
	}
	ctx, stop := context.WithTimeout(t.Context(), rig.Patience)
	p := &parked{t: t, done: make(chan struct{}), stop: stop}
	c := dial(t, m)
	go func() {
		defer close(p.done)
		p.got, p.err = c.Claim(ctx, request)
	}()
	return p
}

func exclusively(r *ipc.ClaimRequest) { r.Exclusive = true }

// claim waits for the answer and returns the claim.
func (p *parked) claim() *ipc.Claim {
	p.t.Helper()
	<-p.done // its context bounds it
	if p.err != nil {
		p.t.Fatal(p.err)
	}
	return p.got
}

// waits waits until the claim is in the queue with n requests in all, and checks that it has no answer.
func (p *parked) waits(m *rig.Machine, n int) {
	m.T.Helper()
	rig.Eventually(m.T, fmt.Sprintf("%d claims wait", n), func() bool { return len(m.Snapshot().Queue) == n || p.resolved() })
	if p.resolved() {
		m.T.Fatalf("%+v, %v instead of a wait", p.got, p.err)
	}
}

// resolved reports whether the claim has an answer.
func (p *parked) resolved() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func index(c *ipc.Claim) int { return int(c.Devices[0].Index) }

func release(t *testing.T, c *ipc.Claim) {
	t.Helper()
	if err := c.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// leased returns the indices of the claimed devices, from a snapshot.
func leased(m *rig.Machine) []int {
	m.T.Helper()
	var all []int
	for _, d := range m.Snapshot().Devices {
		if d.Claims > 0 {
			all = append(all, d.Index)
		}
	}
	return all
}

// TestE1NoDevice: on a machine without a GPU, claims are answered at once and the snapshot is empty.
func TestE1NoDevice(t *testing.T) {
	t.Parallel()
	m, c := pool(t, "none")
	ctx, stop := context.WithTimeout(t.Context(), rig.Patience)
	defer stop()
	if _, err := c.Claim(ctx, ipc.ClaimRequest{}); !errors.Is(err, ipc.StatusNoDevice) {
		t.Errorf("a claim: %v", err)
	}
	if _, err := c.TryClaim(ctx, ipc.ClaimRequest{}); !errors.Is(err, ipc.StatusNoDevice) {
		t.Errorf("a claim that does not wait: %v", err)
	}
	if s := m.Snapshot(); len(s.Devices) != 0 || len(s.Queue) != 0 || len(s.Jobs) != 0 {
		t.Errorf("the snapshot: %+v", s)
	}
	for _, args := range [][]string{{"claim", "--exec", "--", "/bin/true"}, {"run", "--device", "any", "--", "/bin/true"}} {
		if r := rig.Run(t, m.Gpuarb(args...)); r.Code != 69 && r.Code != 125 {
			t.Errorf("gpuarb %v: %d %s", args, r.Code, r.Stderr)
		}
	}
}

// TestE2OneDevice: on a machine with one device, claims are granted one after the other.
func TestE2OneDevice(t *testing.T) {
	t.Parallel()
	m, c := pool(t, "1G")
	first := try(t, c)
	second := park(t, m)
	second.waits(m, 1)
	release(t, first)
	if got := second.claim(); index(got) != 0 {
		t.Errorf("device %d", index(got))
	}
}

// TestE3TwoDevices: two claims at once get two devices, and a third claim gets the first device that is released.
func TestE3TwoDevices(t *testing.T) {
	t.Parallel()
	m, c := pool(t, "1G,1G")
	a, b := try(t, c), try(t, c)
	if index(a) == index(b) {
		t.Fatalf("both have device %d", index(a))
	}
	third := park(t, m)
	third.waits(m, 1)
	dropped := index(b)
	release(t, b)
	if got := third.claim(); index(got) != dropped {
		t.Errorf("device %d was dropped, %d was given", dropped, index(got))
	}
}

// mixed returns a machine with the given simulated NVIDIA devices, and with devices of other vendors from a made-up
// /sys tree.
func mixed(t *testing.T, devices string) (*rig.Machine, *ipc.Client) {
	t.Helper()
	tree, err := filepath.Abs("../../daemon/inventory/testdata/mixed")
	if err != nil {
		t.Fatal(err)
	}
	m := rig.New(t, rig.Options{Devices: devices, NoMount: true, Daemon: []string{"--sysfs", tree}})
	return m, dial(t, m)
}

// TestE4SameVendor and TestE5MixedVendors: each card is a device of its own with the right
// vendor, even if two vendors both number their cards from 0.
func TestE4SameVendor(t *testing.T) {
	t.Parallel()
	m, c := mixed(t, "1G,1G")
	of := map[string][]int{}
	for _, d := range m.Snapshot().Devices {
		of[d.Vendor] = append(of[d.Vendor], d.Index)
	}
	if len(of["nvidia"]) != 2 || len(of["amd"]) < 2 {
		t.Fatalf("the machine has %v", of)
	}
	for vendor, number := range map[string]uint32{"nvidia": ipc.VendorNVIDIA, "amd": ipc.VendorAMD} {
		a, b := try(t, c, of[vendor]...), try(t, c, of[vendor]...)
		if a.Devices[0].Vendor != number || b.Devices[0].Vendor != number || index(a) == index(b) || a.Devices[0].Ordinal == b.Devices[0].Ordinal {
			t.Errorf("two of %s: %+v and %+v", vendor, a.Devices, b.Devices)
		}
	}
}

func TestE5MixedVendors(t *testing.T) {
	t.Parallel()
	m, c := mixed(t, "1G")
	given := map[uint32]int{}
	for range len(m.Snapshot().Devices) {
		claim := try(t, c)
		if claim.Devices[0].Ordinal == 0 {
			given[claim.Devices[0].Vendor]++
		}
	}
	for _, vendor := range []uint32{ipc.VendorNVIDIA, ipc.VendorAMD, ipc.VendorIntel} {
		if given[vendor] != 1 {
			t.Errorf("the first device of vendor %d was given %d times", vendor, given[vendor])
		}
	}
	if try(t, c) != nil {
		t.Error("one more than there are")
	}
}

// TestE6Snapshot: the snapshot has every device in stable order, with vendor, name and index, and
// whether it is claimed at that moment.
func TestE6Snapshot(t *testing.T) {
	t.Parallel()
	m, c := mixed(t, "1G,2G")
	before := m.Snapshot().Devices
	claim := try(t, c, 1)
	after := m.Snapshot().Devices
	for i, d := range after {
		if d.Index != before[i].Index || d.Vendor == "" || d.Name == "" || d.Leased != (d.Index == index(claim)) {
			t.Errorf("line %d: %+v", i, d)
		}
	}
	release(t, claim)
	if got := leased(m); len(got) != 0 {
		t.Errorf("%v are leased after the release", got)
	}
}

// TestE7Pending: the snapshot has the exact number of waiting claims.
func TestE7Pending(t *testing.T) {
	t.Parallel()
	m, c := pool(t, "1G")
	waiting(m, 0)
	held := try(t, c)
	waiting(m, 0)
	one := park(t, m)
	waiting(m, 1)
	two := park(t, m)
	waiting(m, 2)
	three := park(t, m)
	waiting(m, 3)
	two.stop()
	waiting(m, 2)
	release(t, held)
	held = one.claim()
	waiting(m, 1)
	release(t, held)
	held = three.claim()
	waiting(m, 0)
	if <-two.done; !errors.Is(two.err, context.Canceled) {
		t.Errorf("the cancelled one: %v", two.err)
	}
	release(t, held)
}

// TestE8Try: a claim without waiting never enters the queue.
func TestE8Try(t *testing.T) {
	t.Parallel()
	m, c := pool(t, "1G")
	held := try(t, c)
	if held == nil {
		t.Fatal("no device was granted although the pool is free")
	}
	if try(t, c) != nil {
		t.Error("a device was granted although the pool is full")
	}
	if s := m.Snapshot().Stats; s.QueueDepth != 0 || s.Waited != 0 {
		t.Errorf("it counts as waiting: %+v", s)
	}
	release(t, held)
	if try(t, c) == nil {
		t.Error("no device was granted after the release")
	}
}

// TestE9TryTakesNoDue: a device that is released to a waiting claim is not given to a claim without waiting.
func TestE9TryTakesNoDue(t *testing.T) {
	t.Parallel()
	m, c := pool(t, "1G")
	for range 20 {
		held := try(t, c)
		waiter := park(t, m)
		waiting(m, 1)
		stolen := make(chan bool)
		stop := make(chan struct{})
		thief := dial(t, m)
		go func() {
			defer close(stolen)
			for {
				select {
				case <-stop:
					return
				default:
				}
				if claim, _ := thief.TryClaim(t.Context(), ipc.ClaimRequest{}); claim != nil {
					stolen <- true
					return
				}
			}
		}()
		release(t, held)
		got := waiter.claim()
		close(stop)
		if <-stolen {
			t.Fatal("the slot went to a request that did not wait")
		}
		release(t, got)
	}
	// The exclusive claim waits for a program on the device. Its turn comes first.
	user := bare(m)
	user.Want("context c", "ok")
	alone := park(t, m, exclusively)
	alone.waits(m, 1)
	if try(t, c) != nil {
		t.Error("a request without waiting was served before a waiting request")
	}
	user.End()
	release(t, alone.claim())
}

// TestE10Dropped: a device is free again when its claim is released, and when its holder dies,
// for each way of claiming.
func TestE10Dropped(t *testing.T) {
	t.Parallel()
	m, c := pool(t, "1G")
	release(t, try(t, c))
	release(t, park(t, m).claim())
	for _, args := range [][]string{{"claim", "--try", "--exec", "--"}, {"claim", "--exec", "--"}, {"run", "--device", "any", "--"}} {
		p := m.Interact(m.Gpuarb(append(args, "/bin/sh", "-c", "echo ready; exec cat")...))
		if try(t, c) != nil {
			t.Errorf("gpuarb %v has no claim", args)
		}
		next := park(t, m)
		waiting(m, 1)
		p.Signal(syscall.SIGKILL) // the program survives, and ends at the end of its stdin
		p.CloseStdin()
		release(t, next.claim())
	}
	if got := leased(m); len(got) != 0 {
		t.Errorf("%v are leased", got)
	}
}

// TestE11Sparse: the devices of a claim keep their numbers from the machine.
func TestE11Sparse(t *testing.T) {
	t.Parallel()
	m, c := pool(t, "1G,1G,1G,1G,1G,1G")
	var got []int
	for range 3 {
		got = append(got, index(try(t, c, 0, 2, 5)))
	}
	slices.Sort(got)
	if !slices.Equal(got, []int{0, 2, 5}) || !slices.Equal(leased(m), got) {
		t.Errorf("given %v, leased %v", got, leased(m))
	}
	if try(t, c, 0, 2, 5) != nil {
		t.Error("a fourth claim of three devices was granted")
	}
	r := rig.Run(t, m.Gpuarb("run", "--device", "any", "--prefer", "4,3", "--", "/bin/sh", "-c", "echo $CUDA_DEVICE_ORDER $CUDA_VISIBLE_DEVICES"))
	if strings.TrimSpace(r.Stdout) != "PCI_BUS_ID "+m.Snapshot().Devices[4].UUID {
		t.Errorf("the program's variables: %q\n%s", r.Stdout, r.Stderr)
	}
}
