package dra

// This file answers the kubelet, and keeps the offer to the scheduler up to date.

import (
	"context"
	"errors"
	"log"
	"reflect"
	"sync"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

// every is the time between two readings of the daemon's devices.
const every = 5 * time.Second

// Driver prepares claims on a node. Set all fields before its first use.
type Driver struct {
	Sockets []string // paths of the daemon's socket; the first that answers is used
	Edits   string   // path of the CDI specification that `gpuarb cdi generate` wrote
	Folder  string   // folder of the CDI specifications of claims, which the container runtime reads
	GPU     string   // CDI device that makes a GPU visible, with {uuid} or {index} in it; "": none
	Shares  int      // shares of a GPU for whose contexts room is left
	Most    uint64   // most bytes of a GPU for one request
	Node    string   // name of the node
	Fatal   func(error)

	mu     sync.Mutex
	seen   []gpu     // the last reading that succeeded; empty: none did
	seenAt time.Time // time of the last reading
	lost   error     // why the last reading failed; nil: it succeeded
}

// PrepareResourceClaims makes claims usable on this node, before a pod that uses them starts.
func (d *Driver) PrepareResourceClaims(ctx context.Context, claims []*resourcev1.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	all := make(map[types.UID]kubeletplugin.PrepareResult, len(claims))
	for _, claim := range claims {
		out := d.prepare(ctx, claim)
		if out.Err != nil {
			log.Print(out.Err)
		}
		all[claim.UID] = out
	}
	return all, nil
}

// UnprepareResourceClaims removes what PrepareResourceClaims made. The containers have ended, and their hooks have closed the jobs.
func (d *Driver) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	all := make(map[types.UID]error, len(claims))
	for _, claim := range claims {
		all[claim.UID] = d.remove(claim.UID)
	}
	return all, nil
}

// HandleError logs an error of the background work, and ends the program if the error is fatal.
func (d *Driver) HandleError(_ context.Context, err error, what string) {
	var dropped *resourceslice.DroppedFieldsError
	switch {
	case errors.As(err, &dropped):
		log.Printf("the cluster lacks features that gpuarb needs, so that claims cannot share GPUs by memory: %v", err)
	case errors.Is(err, kubeletplugin.ErrRecoverable):
		log.Printf("%s: %v", what, err)
	default:
		d.Fatal(err)
	}
}

// Publish offers the GPUs to the scheduler until ctx ends, and again after each change. While the daemon does not answer, new claims are
// kept from the GPUs.
func (d *Driver) Publish(ctx context.Context, helper *kubeletplugin.Helper) error {
	var offered []resourcev1.Device
	said := ""
	say := func(text string) {
		if text != said && text != "" {
			log.Print(text)
		}
		said = text
	}
	for {
		devices, problem := d.offer(ctx)
		say(problem)
		if devices != nil && !reflect.DeepEqual(devices, offered) {
			pools := map[string]resourceslice.Pool{d.Node: {Slices: []resourceslice.Slice{{Devices: devices}}}}
			if err := helper.PublishResources(ctx, resourceslice.DriverResources{Pools: pools}); err != nil {
				return err
			}
			log.Printf("offering %d GPUs to the scheduler", len(devices))
			offered = devices
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(every):
		}
	}
}

// offer reads the GPUs and returns their descriptions. It returns nil if the daemon has not answered since the start. problem says what
// an administrator should mend.
func (d *Driver) offer(ctx context.Context) (devices []resourcev1.Device, problem string) {
	gpus, err := d.gpus(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seenAt, d.lost = time.Now(), err
	if err == nil {
		d.seen, devices = gpus, []resourcev1.Device{}
	} else {
		problem = err.Error()
	}
	for i := range d.seen {
		device, err := d.device(&d.seen[i])
		if err != nil {
			problem = err.Error()
			continue
		}
		if d.lost != nil {
			device.Taints = append(device.Taints, resourcev1.DeviceTaint{Key: taintNoDaemon, Effect: resourcev1.DeviceTaintEffectNoSchedule})
		}
		devices = append(devices, device)
	}
	return devices, problem
}

// WatchHealthStatus reports the health of the GPUs to the kubelet, which takes a report as valid for 30 s.
func (d *Driver) WatchHealthStatus(ctx context.Context, reports chan<- kubeletplugin.DeviceHealthReport) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case reports <- d.report():
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(every):
		}
	}
}

// report returns the health of all GPUs at the last reading.
func (d *Driver) report() (r kubeletplugin.DeviceHealthReport) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range d.seen {
		r.Devices = append(r.Devices, d.health(&d.seen[i], d.lost, d.seenAt))
	}
	return r
}
