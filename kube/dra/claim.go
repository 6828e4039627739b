package dra

// This file prepares a claim. It computes the claim's budget from the devices that the scheduler allocated. The CDI specification with the
// budget is written in file.go. The methods that the kubelet's helper calls are in driver.go.

import (
	"context"
	"fmt"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/kube/share"
)

// budget has the limits of the container that uses a claim.
type budget struct {
	claim   types.UID
	name    string // name of the job: NAMESPACE/CLAIM, shortened if it is too long for a job's name
	streams uint64 // most streams of each process; 0: the daemon's own limit
	parts   []part
}

// part is the budget of a claim on one GPU.
type part struct {
	gpu   string // id of the GPU
	bytes uint64 // sum of the claim's shares of this GPU
}

// prepare writes the CDI specification of a claim, and returns the CDI devices that the runtime must give to a container of the claim. The
// driver's field GPU adds the vendor's CDI device for each GPU.
func (d *Driver) prepare(ctx context.Context, claim *resourcev1.ResourceClaim) (out kubeletplugin.PrepareResult) {
	gpus, err := d.gpus(ctx)
	if err == nil {
		var b budget
		if b, err = d.budget(claim, gpus); err == nil {
			var spec share.Spec
			if spec, err = d.spec(b); err == nil {
				err = d.write(claim.UID, spec)
			}
		}
	}
	if err != nil {
		out.Err = fmt.Errorf("gpuarb: claim %s/%s: %w", claim.Namespace, claim.Name, err)
		return out
	}
	for _, r := range results(claim) {
		devices := []string{kind + "=" + string(claim.UID)}
		if g := find(gpus, r.Device); d.GPU != "" {
			devices = append(devices, strings.NewReplacer("{uuid}", g.id(), "{index}", fmt.Sprint(g.Index)).Replace(d.GPU))
		}
		out.Devices = append(out.Devices, kubeletplugin.Device{Requests: []string{r.Request}, PoolName: r.Pool, DeviceName: r.Device, ShareID: r.ShareID, CDIDeviceIDs: devices})
	}
	return out
}

// results returns those devices of a claim's allocation that belong to this driver.
func results(claim *resourcev1.ResourceClaim) (own []resourcev1.DeviceRequestAllocationResult) {
	for _, r := range claim.Status.Allocation.Devices.Results {
		if r.Driver == share.Driver {
			own = append(own, r)
		}
	}
	return own
}

// find returns the GPU whose DRA device has the name device; nil: the node has no such GPU.
func find(gpus []gpu, device string) *gpu {
	at := slices.IndexFunc(gpus, func(g gpu) bool { return g.name() == device })
	if at < 0 {
		return nil
	}
	return &gpus[at]
}

// budget returns the budget of a claim, or an error that says why the claim cannot be held. Several shares of one GPU add up. If several
// results name streams, the largest number counts.
func (d *Driver) budget(claim *resourcev1.ResourceClaim, gpus []gpu) (budget, error) {
	b := budget{claim: claim.UID, name: ipc.BindingName(claim.Namespace + "/" + claim.Name)}
	for _, r := range results(claim) {
		g := find(gpus, r.Device)
		if g == nil {
			return b, fmt.Errorf("the node has no GPU %s: its card may have been removed; delete the pod, so that it is scheduled again", r.Device)
		}
		if r.AdminAccess != nil && *r.AdminAccess {
			return b, fmt.Errorf("request %s has adminAccess, which has no budget: request memory instead", r.Request)
		}
		if wrong := g.wrong(); wrong != "" {
			return b, fmt.Errorf("GPU %s: %s", g.id(), wrong)
		}
		bytes, err := amount(r, memory, g.Total)
		if err != nil {
			return b, err
		}
		at := slices.IndexFunc(b.parts, func(p part) bool { return p.gpu == g.id() })
		if at < 0 {
			at, b.parts = len(b.parts), append(b.parts, part{gpu: g.id()})
		}
		if b.parts[at].bytes += bytes; b.parts[at].bytes > g.Total {
			return b, fmt.Errorf("it was allocated %d bytes of GPU %s, which has %d", b.parts[at].bytes, g.id(), g.Total)
		}
		if q, set := r.ConsumedCapacity[streams]; set && q.Value() > 0 {
			b.streams = max(b.streams, uint64(q.Value()))
		}
	}
	switch n := len(b.parts); {
	case n == 0:
		return b, fmt.Errorf("no device of %s is allocated to it", share.Driver)
	case n > ipc.PageSlots:
		return b, fmt.Errorf("it has %d GPUs, and a job can use at most %d: request fewer GPUs in one claim", n, ipc.PageSlots)
	}
	return b, nil
}

// amount returns how much the result r takes of its device's capacity name. A missing amount, an amount below 1 and an amount above most
// are errors.
func amount(r resourcev1.DeviceRequestAllocationResult, name resourcev1.QualifiedName, most uint64) (uint64, error) {
	q, set := r.ConsumedCapacity[name]
	switch n := q.Value(); {
	case !set:
		return 0, fmt.Errorf("its allocation does not say how much %s of %s it consumes: the cluster needs the feature DRAConsumableCapacity, which is on by default since Kubernetes 1.36", name, r.Device)
	case n <= 0:
		return 0, fmt.Errorf("it consumes %s of %s of %s: request at least one byte", q.String(), name, r.Device)
	case uint64(n) > most:
		return 0, fmt.Errorf("it consumes %d bytes of %s, which has %d", n, r.Device, most)
	default:
		return uint64(n), nil
	}
}
