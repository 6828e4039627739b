package daemon

import (
	"fmt"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/gpuarb/gpuarb/daemon/inventory"
	"github.com/gpuarb/gpuarb/internal/procfacts"
)

// This file has the clock and the devices of the tests in this package. A test moves the clock, and decides what the
// devices report and whether they answer. daemon_test.go starts daemons with them.

// fakeClock is a clock that the test advances. Its times have a wall clock and a monotonic reading, like those of
// time.Now. Jump moves only the wall clock.
type fakeClock struct {
	mu     sync.Mutex
	base   time.Time
	passed time.Duration // time passed on the monotonic clock
	jumped time.Duration // shift of the wall clock, in whole seconds
	step   time.Duration // time that passes with each call of now
	timers []fakeTimer
}

type fakeTimer struct {
	at   time.Duration
	ring chan time.Time
}

func newFakeClock() *fakeClock { return &fakeClock{base: time.Now()} }

// timeBits is the first word of a time.Time: a bit that says that it has a monotonic reading, 33 bits of wall seconds
// and 30 bits of nanoseconds. Package time has no function that sets the two readings apart.
type timeBits struct{ wall uint64 }

func (c *fakeClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.passed += c.step
	return c.nowLocked()
}

// creep makes time pass with each reading of the clock.
func (c *fakeClock) creep(step time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.step = step
}

func (c *fakeClock) nowLocked() time.Time {
	t := c.base.Add(c.passed)
	(*timeBits)(unsafe.Pointer(&t)).wall += uint64(c.jumped/time.Second) << 30
	return t
}

func (c *fakeClock) after(d time.Duration) <-chan time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := fakeTimer{at: c.passed + d, ring: make(chan time.Time, 1)}
	c.timers = append(c.timers, t)
	c.ringLocked()
	return t.ring
}

func (c *fakeClock) uptime() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Hour + c.passed
}

// Advance lets time pass on both clocks.
func (c *fakeClock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.passed += d
	c.ringLocked()
}

// Jump sets the machine's wall clock, as a user or a sleep of the machine does.
func (c *fakeClock) Jump(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.jumped += d.Truncate(time.Second)
}

func (c *fakeClock) ringLocked() {
	left := c.timers[:0]
	for _, t := range c.timers {
		if t.at <= c.passed {
			t.ring <- c.nowLocked()
		} else {
			left = append(left, t)
		}
	}
	c.timers = left
}

// TestFakeClock checks that a jump moves only the wall clock.
func TestFakeClock(t *testing.T) {
	c := newFakeClock()
	before := c.now()
	c.Jump(-24 * time.Hour)
	c.Advance(time.Minute)
	after := c.now()
	if even, wall := after.Sub(before), after.Round(0).Sub(before.Round(0)); even != time.Minute || wall != time.Minute-24*time.Hour {
		t.Errorf("%v on the even clock, %v on the wall's", even, wall)
	}
}

// fakeMachine has devices that a test can lose, hang and fill. Its facts about processes are real.
type fakeMachine struct {
	realMachine
	list []inventory.Device

	mu       sync.Mutex
	lost     map[int]bool
	failing  map[int]error
	hung     map[int]chan struct{}
	held     map[int]map[int]uint64 // bytes in use, by device and process
	readings map[int]int
	unmapped map[int]bool // processes that have executed another program
	closed   bool
}

// newFakeMachine makes devices of these sizes.
func newFakeMachine(t *testing.T, sizes ...uint64) *fakeMachine {
	t.Helper()
	real := realMachine{inventory.Open(inventory.Options{SysfsRoot: t.TempDir()}), procfacts.NewReader()}
	m := &fakeMachine{realMachine: real, lost: map[int]bool{}, failing: map[int]error{}, hung: map[int]chan struct{}{},
		held: map[int]map[int]uint64{}, readings: map[int]int{}, unmapped: map[int]bool{}}
	for i, size := range sizes {
		m.held[i] = map[int]uint64{}
		m.list = append(m.list, inventory.Device{Index: i, Ordinal: i, Vendor: "nvidia", Name: fmt.Sprintf("Fake %d", i),
			UUID: fmt.Sprintf("GPU-%08d-0000-0000-0000-000000000000", i), PCI: fmt.Sprintf("0000:%02x:00.0", i),
			UUIDBytes: [16]byte{1, byte(i)}, Total: size})
	}
	t.Cleanup(func() { m.unhang(); real.Close() })
	return m
}

func (m *fakeMachine) Devices() []inventory.Device { return append([]inventory.Device(nil), m.list...) }

func (m *fakeMachine) IsMapped(pid int, inode uint64, name string) (bool, error) {
	m.mu.Lock()
	gone := m.unmapped[pid]
	m.mu.Unlock()
	if gone {
		return false, nil
	}
	return m.realMachine.IsMapped(pid, inode, name)
}

func (m *fakeMachine) Why() string { return "" }

func (m *fakeMachine) Scan() []inventory.Device { return nil }

func (m *fakeMachine) Suspended(int) bool { return false }

func (m *fakeMachine) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
}

// answer counts a reading, waits for as long as the device hangs, and returns the error that the test has set for the
// device.
func (m *fakeMachine) answer(index int) error {
	m.mu.Lock()
	m.readings[index]++
	hung, err := m.hung[index], m.failing[index]
	m.mu.Unlock()
	if hung != nil {
		<-hung
	}
	return err
}

func (m *fakeMachine) Utilisation(int) map[int]int { return nil }

func (m *fakeMachine) Read(index int) (inventory.Usage, error) {
	if err := m.answer(index); err != nil {
		return inventory.Usage{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lost[index] {
		return inventory.Usage{Lost: true}, nil
	}
	u := inventory.Usage{ProcessesKnown: true}
	for pid, bytes := range m.held[index] {
		u.Processes = append(u.Processes, inventory.ProcessUsage{PID: pid, Bytes: bytes})
	}
	return u, nil
}

// set changes the machine's next answers.
func (m *fakeMachine) set(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
}

// hang stops all answers of a device until unhang.
func (m *fakeMachine) hang(index int) {
	m.set(func() { m.hung[index] = make(chan struct{}) })
}

// unhang makes all devices answer, also the readings that wait.
func (m *fakeMachine) unhang() {
	m.set(func() {
		for index, hung := range m.hung {
			close(hung)
			delete(m.hung, index)
		}
	})
}

// read returns how often a device was read.
func (m *fakeMachine) read(index int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.readings[index]
}
