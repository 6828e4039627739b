package inventory

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
	// openPatience is how long the first look at a device, or at all, may take where
	// something is known to go by instead.
	openPatience = 5 * time.Second
	// renewEvery is how often a library is initialised again that does not see a device.
	renewEvery = 3 * time.Second
	// renewPatience is how long that waits for calls that are under way, with pauses in which others may call.
	renewPatience = 200 * time.Millisecond
	renewPause    = time.Millisecond
)

// nvmlMu orders loads and unloads: the binding keeps the versions of the functions
// that it found in variables of its own package, shared by all who load the library.
var nvmlMu sync.Mutex

// nvmlHost is the library, and the handles that were taken since it was initialised. It
// looks at the devices at that moment: one that was lost is seen again after the next, which
// ends all handles, so that they are taken anew by UUID. No call may be under way then.
type nvmlHost struct {
	lib      nvmlLibrary
	optional nvmlOptional // set when the library is up
	over     atomic.Bool  // released: nobody calls it any more

	calls sync.RWMutex // shared by those that are under way; alone has it who initialises the library, from the beginning start
	up    bool         // initialised; calls guards it

	mu      sync.Mutex // taken with calls held
	handles map[string]nvmlDevice
	renewed time.Time
	why     string // why the library is not up
}

// nvmlLibrary is what is asked of the library as a whole.
type nvmlLibrary interface {
	Init() nvml.Return
	Shutdown() nvml.Return
	DeviceGetCount() (int, nvml.Return)
	DeviceGetHandleByIndex(int) (nvml.Device, nvml.Return)
	DeviceGetHandleByUUID(string) (nvml.Device, nvml.Return)
	Extensions() nvml.ExtendedInterface
}

// errDown is what a source sees while the library is not initialised.
var errDown = errors.New("NVML is not initialised")

func newNVMLHost(lib nvmlLibrary) *nvmlHost {
	h := &nvmlHost{lib: lib, handles: map[string]nvmlDevice{}}
	h.calls.Lock()
	return h
}

// start initialises the library for the first time, and says why that is of no use.
func (h *nvmlHost) start() (reason string) {
	defer h.calls.Unlock()
	reason = h.bringUp()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.renewed = time.Now()
	return reason
}

// bringUp initialises the library, and says why that is of no use.
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

func (h *nvmlHost) init() nvml.Return {
	nvmlMu.Lock()
	defer nvmlMu.Unlock()
	return h.lib.Init()
}

// abilities says what the library can do; a reason, where that is too little.
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
		reserved: has("nvmlDeviceGetMemoryInfo_v2"),
		memory:   has("nvmlDeviceGetMemoryInfo"),
		name:     has("nvmlDeviceGetName"),
		pci:      has("nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo_v2", "nvmlDeviceGetPciInfo"),
		compute:  has("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2", "nvmlDeviceGetComputeRunningProcesses"),
		mig:      has("nvmlDeviceGetMigMode") && has("nvmlDeviceGetMaxMigDeviceCount") && has("nvmlDeviceGetMigDeviceHandleByIndex"),
	}, ""
}

// release gives the library back, as soon as no call is under way; it does not wait for one.
func (h *nvmlHost) release() {
	h.over.Store(true)
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

// count says how many devices there are, or why that is not known.
func (h *nvmlHost) count() (n int, reason string) {
	n, ret := h.lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return 0, fmt.Sprintf("NVIDIA: the devices cannot be counted: %v", ret)
	}
	return n, ""
}

// running reports whether the library is initialised, or is being initialised.
func (h *nvmlHost) running() bool {
	if !h.calls.TryRLock() {
		return true
	}
	defer h.calls.RUnlock()
	return h.up
}

// begin waits until the library is initialised, and keeps it so until leave.
func (h *nvmlHost) begin() error {
	if h.over.Load() {
		return errDown
	}
	h.calls.RLock()
	if !h.up || h.over.Load() {
		h.calls.RUnlock()
		return errDown
	}
	return nil
}

func (h *nvmlHost) leave() { h.calls.RUnlock() }

func (h *nvmlHost) keep(uuid string, handle nvmlDevice) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.handles[uuid] = handle
}

// enter is begin with the handle of a device.
func (h *nvmlHost) enter(uuid string) (nvmlDevice, error) {
	if err := h.begin(); err != nil {
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
		ret = nvml.ERROR_GPU_NOT_FOUND // it was there
	}
	if err := nvmlError("the device", ret); err != nil {
		h.leave()
		return nil, err
	}
	h.keep(uuid, handle)
	return handle, nil
}

// renew initialises the library again, now and then. Where a call into it does not end, that
// is left for another time.
func (h *nvmlHost) renew() {
	h.mu.Lock()
	due := time.Since(h.renewed) >= renewEvery
	if due {
		h.renewed = time.Now()
	}
	h.mu.Unlock()
	if !due || h.over.Load() {
		return
	}
	for late := time.Now().Add(renewPatience); !h.calls.TryLock(); time.Sleep(renewPause) {
		if time.Now().After(late) {
			return
		}
	}
	defer h.calls.Unlock()
	if h.over.Load() {
		return
	}
	if h.up {
		h.lib.Shutdown()
	}
	h.handles = map[string]nvmlDevice{}
	h.bringUp()
}
