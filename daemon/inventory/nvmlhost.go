package inventory

// This file has the NVML library: loading it, guarding calls into it, and initialising it again. nvmlfind.go and
// nvmlread.go make the calls.

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

const (
	// openPatience bounds the first wait for the library and for each device if the last run's devices can take their
	// place.
	openPatience = 5 * time.Second
	// renewEvery is the shortest interval between two initialisations for a device that the library does not see.
	renewEvery = 3 * time.Second
	// renewPatience is how long renew waits for a moment without calls into the library. renewPause is the pause
	// between two attempts, in which other calls may begin.
	renewPatience = 200 * time.Millisecond
	renewPause    = time.Millisecond
)

// nvmlMu orders loads and unloads, because the binding keeps the addresses of functions in variables of its package,
// shared by all users of the library.
var nvmlMu sync.Mutex

// nvmlHost is the library with the device handles taken since its initialisation. The library looks for devices only
// when it is initialised. To see a lost device again, the host initialises the library again, which ends all handles;
// they are then taken again by UUID. No call may be under way at that time.
type nvmlHost struct {
	lib      nvmlLibrary
	optional nvmlOptional // valid while up is true
	released atomic.Bool  // no call may begin any more

	calls sync.RWMutex // read-locked by calls; locked while the library is initialised, from newNVMLHost to start at first
	up    bool         // the library is initialised; guarded by calls

	mu      sync.Mutex // guards the fields below; taken after calls
	handles map[string]nvmlDevice
	renewed time.Time
	why     string // reason why the library is not up
}

// nvmlLibrary is the set of calls for the library as a whole. Tests replace it.
type nvmlLibrary interface {
	Init() nvml.Return
	Shutdown() nvml.Return
	DeviceGetCount() (int, nvml.Return)
	DeviceGetHandleByIndex(int) (nvml.Device, nvml.Return)
	DeviceGetHandleByUUID(string) (nvml.Device, nvml.Return)
	Extensions() nvml.ExtendedInterface
}

// errDown means that the library is not initialised.
var errDown = errors.New("NVML is not initialised")

// newNVMLHost returns a host whose calls wait until start has run.
func newNVMLHost(lib nvmlLibrary) *nvmlHost {
	h := &nvmlHost{lib: lib, handles: map[string]nvmlDevice{}}
	h.calls.Lock()
	return h
}

// start initialises the library for the first time. reason says why it is not usable.
func (h *nvmlHost) start() (reason string) {
	defer h.calls.Unlock()
	reason = h.bringUp()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.renewed = time.Now()
	return reason
}

// bringUp initialises the library. reason says why it is not usable. The caller has locked h.calls for writing.
func (h *nvmlHost) bringUp() (reason string) {
	if ret := h.init(); ret != nvml.SUCCESS {
		reason = nvmlReason(ret)
	} else if h.optional, reason = h.abilities(); reason != "" {
		h.lib.Shutdown()
	}
	h.up = reason == ""
	h.mu.Lock()
	defer h.mu.Unlock()
	h.why = reason
	return reason
}

// init calls nvmlInit.
func (h *nvmlHost) init() nvml.Return {
	nvmlMu.Lock()
	defer nvmlMu.Unlock()
	return h.lib.Init()
}

// abilities finds the library's optional functions. reason names a required function that is missing.
func (h *nvmlHost) abilities() (o nvmlOptional, reason string) {
	has := func(names ...string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return h.lib.Extensions().LookupSymbol(n) == nil })
	}
	for _, names := range nvmlNeeded {
		if !has(names...) {
			return o, "NVIDIA: libnvidia-ml.so.1 is too old: it has no " + names[0]
		}
	}
	return nvmlOptional{
		graphics: has("nvmlDeviceGetGraphicsRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses_v2",
			"nvmlDeviceGetGraphicsRunningProcesses_v3"),
		mps: has("nvmlDeviceGetMPSComputeRunningProcesses", "nvmlDeviceGetMPSComputeRunningProcesses_v2",
			"nvmlDeviceGetMPSComputeRunningProcesses_v3"),
		reserved:    has("nvmlDeviceGetMemoryInfo_v2"),
		memory:      has("nvmlDeviceGetMemoryInfo"),
		name:        has("nvmlDeviceGetName"),
		pci:         has("nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo_v2", "nvmlDeviceGetPciInfo"),
		compute:     has("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2", "nvmlDeviceGetComputeRunningProcesses"),
		utilisation: has("nvmlDeviceGetProcessUtilization"),
		limits:      has("nvmlDeviceGetMemoryLimits_v1") && has("nvmlDeviceSetMemoryLimits_v1"),
		mig:         has("nvmlDeviceGetMigMode") && has("nvmlDeviceGetMaxMigDeviceCount") && has("nvmlDeviceGetMigDeviceHandleByIndex"),
	}, ""
}

// release shuts the library down once no call is under way; it does not wait for that itself.
func (h *nvmlHost) release() {
	h.released.Store(true)
	shut := func() {
		defer h.calls.Unlock()
		if h.up {
			h.up = false
			nvmlMu.Lock()
			defer nvmlMu.Unlock()
			h.lib.Shutdown()
		}
	}
	if h.calls.TryLock() {
		shut()
		return
	}
	go func() {
		h.calls.Lock()
		shut()
	}()
}

// count returns the number of devices, or the reason why it is unknown.
func (h *nvmlHost) count() (n int, reason string) {
	n, ret := h.lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return 0, fmt.Sprintf("NVIDIA: the devices cannot be counted: %v", ret)
	}
	return n, ""
}

// running reports whether the library is initialised or is being initialised.
func (h *nvmlHost) running() bool {
	if !h.calls.TryRLock() {
		return true
	}
	defer h.calls.RUnlock()
	return h.up
}

// beginCall waits until the library is initialised, and keeps it initialised until endCall.
func (h *nvmlHost) beginCall() error {
	if h.released.Load() {
		return errDown
	}
	h.calls.RLock()
	if !h.up || h.released.Load() {
		h.calls.RUnlock()
		return errDown
	}
	return nil
}

// endCall ends what beginCall or beginDeviceCall began.
func (h *nvmlHost) endCall() { h.calls.RUnlock() }

// storeHandle records the handle of a device.
func (h *nvmlHost) storeHandle(uuid string, handle nvmlDevice) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.handles[uuid] = handle
}

// beginDeviceCall does the work of beginCall and returns the device's handle.
func (h *nvmlHost) beginDeviceCall(uuid string) (nvmlDevice, error) {
	if err := h.beginCall(); err != nil {
		return nil, err
	}
	h.mu.Lock()
	handle := h.handles[uuid]
	h.mu.Unlock()
	if handle != nil {
		return handle, nil
	}
	handle, ret := h.lib.DeviceGetHandleByUUID(uuid)
	if ret == nvml.ERROR_NOT_FOUND {
		ret = nvml.ERROR_GPU_NOT_FOUND // the device was found before
	}
	if err := nvmlError("the device", ret); err != nil {
		h.endCall()
		return nil, err
	}
	h.storeHandle(uuid, handle)
	return handle, nil
}

// renew initialises the library again, at most once in renewEvery. If a call into it does not end in time, renew
// leaves that to a later call.
func (h *nvmlHost) renew() {
	h.mu.Lock()
	due := time.Since(h.renewed) >= renewEvery
	if due {
		h.renewed = time.Now()
	}
	h.mu.Unlock()
	if !due || h.released.Load() {
		return
	}
	for late := time.Now().Add(renewPatience); !h.calls.TryLock(); time.Sleep(renewPause) {
		if time.Now().After(late) {
			return
		}
	}
	defer h.calls.Unlock()
	if h.released.Load() {
		return
	}
	if h.up {
		h.lib.Shutdown()
	}
	h.handles = map[string]nvmlDevice{}
	h.bringUp()
}
