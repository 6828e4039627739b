package inventory

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpuarb/gpuarb/tests/bounded"
)

// This file checks what the inventory says while the NVML library hangs, fails to start or loses a device, and that
// it recovers without a restart of the daemon. nvml_test.go checks the readings of a library that works.

// fakeSource returns a device of an initialised library.
func fakeSource(device nvmlDevice, o nvmlOptional) *nvmlSource {
	h := newNVMLHost(&fakeLibrary{})
	h.optional, h.up, h.renewed = o, true, time.Now()
	h.calls.Unlock()
	h.storeHandle("x", device)
	return &nvmlSource{host: h, uuid: "x"}
}

// fakeLibrary is a library that sees the devices that exist when it is initialised.
type fakeLibrary struct {
	nvml.Interface

	mu    sync.Mutex
	inits int
	fails nvml.Return            // the result of Init
	there map[string]nvml.Device // devices that exist now
	seen  map[string]nvml.Device // devices that existed at the last initialisation
}

func (l *fakeLibrary) Init() nvml.Return {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inits++
	l.seen = l.there
	return l.fails
}

func (l *fakeLibrary) Extensions() nvml.ExtendedInterface { return everything{} }

func (l *fakeLibrary) Shutdown() nvml.Return { return nvml.SUCCESS }

func (l *fakeLibrary) DeviceGetHandleByUUID(uuid string) (nvml.Device, nvml.Return) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if d, ok := l.seen[uuid]; ok {
		return d, nvml.SUCCESS
	}
	return nil, nvml.ERROR_NOT_FOUND
}

func (l *fakeLibrary) set(there map[string]nvml.Device) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.there = there
}

// again lets the next renew initialise the library without waiting for renewEvery.
func (s *nvmlSource) again() {
	s.host.mu.Lock()
	defer s.host.mu.Unlock()
	s.host.renewed = time.Time{}
}

// TestLostDeviceIsSeenAgain: the library is initialised again for a lost device, which gets a new handle. That does
// not happen while a call is under way.
func TestLostDeviceIsSeenAgain(t *testing.T) {
	lib := &fakeLibrary{there: map[string]nvml.Device{}}
	s := fakeSource(fakeDevice(nil, nil, nvml.ERROR_GPU_IS_LOST), nvmlOptional{memory: true, compute: true})
	s.host.lib = lib
	want := func(lost bool, inits int) {
		t.Helper()
		if u, err := s.usage(); err != nil || u.Lost != lost || lib.inits != inits {
			t.Errorf("%+v, %v, initialised %d times; want lost %v, %d times", u, err, lib.inits, lost, inits)
		}
	}
	want(true, 0) // renewEvery has not passed
	s.again()
	want(true, 1) // initialised again, but the device is still missing
	s.again()
	want(true, 2)
	lib.set(map[string]nvml.Device{"x": fakeDevice(nil, nil, nvml.SUCCESS)})
	if err := s.host.beginCall(); err != nil {
		t.Fatal(err)
	}
	s.again()
	want(true, 2) // not initialised again, because a call is under way
	s.host.endCall()
	s.again()
	want(true, 3) // the old handle still answered this call
	want(false, 3)
}

// TestLibraryHangsAtOpen: if the library hangs, the devices are those of the last run. They are read as soon as the
// library answers.
func TestLibraryHangsAtOpen(t *testing.T) {
	for _, at := range []string{"Init", "DeviceGetCount"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			lib := &hangingLibrary{fakeLibrary: fakeLibrary{there: map[string]nvml.Device{"GPU-1": fakeDevice(nil, nil, nvml.SUCCESS)}},
				at: at, answer: make(chan struct{})}
			last := []Device{{Index: 0, Vendor: "nvidia", UUID: "GPU-1", Total: 5}, {Index: 1, Vendor: "amd"}}
			host := newNVMLHost(lib)
			list, reason := host.open(last)
			if len(list) != 1 || list[0].device.UUID != "GPU-1" || reason == "" {
				t.Fatalf("%+v, %q", list, reason)
			}
			read := make(chan error, 1)
			go func() {
				_, err := list[0].source.usage()
				read <- err
			}()
			close(lib.answer)
			if err := bounded.Receive(t, "it is read", read); err != nil && !errors.Is(err, errDown) {
				t.Error(err)
			}
			host.release()
		})
	}
}

// TestLibraryFailsAtOpen: if the library does not start, although it did in the last run, the devices are those of
// that run. They are read as soon as the library starts.
func TestLibraryFailsAtOpen(t *testing.T) {
	lib := &fakeLibrary{there: map[string]nvml.Device{"GPU-1": fakeDevice(nil, nil, nvml.SUCCESS)}, fails: nvml.ERROR_LIB_RM_VERSION_MISMATCH}
	host := newNVMLHost(lib)
	list, reason := host.open([]Device{{Index: 0, Vendor: "nvidia", UUID: "GPU-1", Total: 5}})
	if len(list) != 1 || list[0].device.UUID != "GPU-1" || !strings.Contains(reason, "reboot") || !strings.Contains(reason, "had last") {
		t.Fatalf("%+v, %q", list, reason)
	}
	s := list[0].source.(*nvmlSource)
	if u, err := s.usage(); err == nil || u.Lost {
		t.Errorf("%+v, %v while it does not start", u, err)
	}
	lib.fails = nvml.SUCCESS
	s.again()
	_, _ = s.usage() // starts the library
	if u, err := s.usage(); err != nil || u.Lost || !s.host.optional.graphics {
		t.Errorf("%+v, %v once it starts", u, err)
	}
	host.release()
	if list, reason := newNVMLHost(&fakeLibrary{fails: nvml.ERROR_DRIVER_NOT_LOADED}).open(nil); list != nil || strings.Contains(reason, "had last") {
		t.Errorf("%+v, %q without any known", list, reason)
	}
}

// hangingLibrary is a library that hangs at first.
type hangingLibrary struct {
	fakeLibrary
	at     string // the function that hangs
	answer chan struct{}
}

func (l *hangingLibrary) Init() nvml.Return {
	l.hang("Init")
	return l.fakeLibrary.Init()
}

func (l *hangingLibrary) DeviceGetCount() (int, nvml.Return) {
	l.hang("DeviceGetCount")
	return 1, nvml.SUCCESS
}

func (l *hangingLibrary) hang(at string) {
	if l.at == at {
		<-l.answer
	}
}

// everything reports each optional function of the library as present.
type everything struct{}

func (everything) LookupSymbol(string) error { return nil }
