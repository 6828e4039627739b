package dra

// This file has the driver's methods that the kubelet's helper calls. It also has the loop that renews the offer to the scheduler. Claims
// are prepared in claim.go, and GPUs are described in offer.go.

import (
	"context"
	"errors"
	"fmt"
	"log"
	"reflect"
	"sync"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

// every is the time between two readings of the GPUs from the daemon, and between two health reports to the kubelet.
const every = 5 * time.Second

// Driver is the DRA driver of one node. It offers the node's GPUs, and prepares claims. Set all exported fields before its first use.
type Driver struct {
	Sockets []string    // paths of the daemon's socket; the first that answers is used
	Edits   string      // path of the CDI specification that `gpuarb cdi generate` wrote
	Folder  string      // folder of the CDI specifications of claims, which the container runtime reads
	GPU     string      // CDI device that makes a GPU visible, with {uuid} or {index} in it; "": none
	Shares  int         // expected shares of each GPU; memory for one context of each share is left out of the offer
	Most    uint64      // most bytes that one request can take of a GPU; share.Unlimited: no limit
	Node    string      // name of the node
	Fatal   func(error) // ends the program with an error of the background work

	mu     sync.Mutex
	seen   []gpu     // GPUs at the last reading that succeeded; nil: none succeeded yet
	seenAt time.Time // time of the last reading, also if it failed
	lost   error     // why the last reading failed; nil: it succeeded
}

// PrepareResourceClaims writes the CDI specifications of claims. The kubelet's helper calls it before a pod that uses the claims starts.
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

// UnprepareResourceClaims removes the CDI specifications of claims. The kubelet's helper calls it when the containers have ended. Their
// hooks have closed the jobs.
func (d *Driver) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	all := make(map[types.UID]error, len(claims))
	for _, claim := range claims {
		all[claim.UID] = d.remove(claim.UID)
	}
	return all, nil
}

// HandleError logs an error of the helper's background work. If the helper cannot recover from the error, HandleError ends the program
// through Fatal. Dropped fields are only logged: the API server did not keep them, because a feature is off.
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

// Publish reads the GPUs again and again until ctx ends, and offers them to the scheduler when their description has changed. While the
// daemon does not answer, taints keep new claims from the GPUs.
func (d *Driver) Publish(ctx context.Context, helper *kubeletplugin.Helper) error {
	var offered []resourcev1.Device
	said := ""
	for {
		devices, problems := d.offer(ctx)
		text := fmt.Sprint(problems)
		if problems != nil && text != said {
			log.Print(text)
		}
		said = text
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

// offer reads the GPUs, and returns the descriptions of all GPUs that can be offered. Without an answer of the daemon, it describes the
// GPUs of the last reading that succeeded, with a taint. If that reading has no such GPU, devices is nil and the published offer
// stays. The result problems joins all errors that an administrator should mend. If the daemon does not answer, that is an error, and so is
// each GPU that is left out of the offer.
func (d *Driver) offer(ctx context.Context) (devices []resourcev1.Device, problems error) {
	gpus, err := d.gpus(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seenAt, d.lost, problems = time.Now(), err, err
	if err == nil {
		d.seen, devices = gpus, []resourcev1.Device{}
	}
	for i := range d.seen {
		device, err := d.device(&d.seen[i])
		if err != nil {
			problems = errors.Join(problems, err)
			continue
		}
		if d.lost != nil {
			device.Taints = append(device.Taints, resourcev1.DeviceTaint{Key: taintNoDaemon, Effect: resourcev1.DeviceTaintEffectNoSchedule})
		}
		devices = append(devices, device)
	}
	return devices, problems
}

// WatchHealthStatus reports the health of the GPUs every 5 s until ctx ends. The kubelet takes a report as valid for 30 s.
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
