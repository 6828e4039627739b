package inventory

// Device is one GPU as it was found. Nothing in it changes while the inventory is open.
type Device struct {
	Index     int    // unique on this machine: NVIDIA first, by NVML's index, then AMD, then Intel
	Vendor    string // nvidia, amd or intel
	Name      string
	UUID      string   // "GPU-…" as NVML spells it; empty if the device has none
	PCI       string   // domain:bus:device.function, lower case
	UUIDBytes [16]byte // UUID, parsed
	Total     uint64   // bytes; 0 if unknown
}

// ProcessUsage is what one process holds on one device, as the driver says.
type ProcessUsage struct {
	PID   int
	Bytes uint64
}

// Usage is one reading of a device.
type Usage struct {
	UsedBytes      uint64
	Processes      []ProcessUsage // by PID, each once
	Lost           bool           // the device no longer answers; nothing else is filled in
	ProcessesKnown bool           // false: this device does not say who uses it
}

// Options says where to look. The zero value is the running machine.
type Options struct {
	SysfsRoot, ProcRoot string
}

// Inventory is the set of devices. Its methods are safe for concurrent use.
type Inventory struct{}

// Open finds the devices. It does not fail where there is none.
func Open(o Options) (*Inventory, error) { return &Inventory{}, nil }

// Devices returns the devices by index.
func (inv *Inventory) Devices() []Device { return nil }

// Why says why there are no devices, or none of some vendor; empty if there is nothing to say.
func (inv *Inventory) Why() string { return "" }

// Close gives the driver's library back.
func (inv *Inventory) Close() {}

// Read polls one device.
func (inv *Inventory) Read(index int) (Usage, error) { return Usage{}, nil }

// ProcessBytes says what one process holds on one device.
func (inv *Inventory) ProcessBytes(index, pid int) (uint64, bool, error) { return 0, false, nil }
