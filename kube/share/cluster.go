package share

// This file asks the API server what it gave a container: the consumed capacity of its claims, and resources that stand for GPU
// memory. budget.go has the rest.

import (
	"context"
	"fmt"
	"math"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Driver is the name of gpuarb's own DRA driver (package dra). Its claims are left out here, because hooks of its containers open
// the job.
const Driver = "gpu.gpuarb.dev"

// Unit is a resource that stands for GPU memory, with the bytes of one unit of it.
type Unit struct {
	Resource string // name of an extended resource, or of an annotation with a number
	Bytes    uint64
}

// ParseUnit parses NAME=QUANTITY, for example nvidia.com/gpumem=1Mi.
func ParseUnit(text string) (Unit, error) {
	name, value, found := strings.Cut(text, "=")
	if !found || name == "" {
		return Unit{}, fmt.Errorf("%q is not NAME=QUANTITY, such as nvidia.com/gpumem=1Mi", text)
	}
	n, err := Bytes(value)
	return Unit{name, n}, err
}

// Cluster reads pods and claims from an API server.
type Cluster struct {
	Client kubernetes.Interface
	Units  []Unit // resources that stand for GPU memory
}

// Granted returns what the cluster gave a container. If several sources gave bytes, the smallest holds.
func (c *Cluster) Granted(ctx context.Context, namespace, pod, uid, container string) (Granted, error) {
	p, err := c.Client.CoreV1().Pods(namespace).Get(ctx, pod, metav1.GetOptions{})
	if err != nil {
		return Granted{}, fmt.Errorf("pod %s/%s cannot be read from the API server: %w", namespace, pod, err)
	}
	if string(p.UID) != uid {
		return Granted{}, fmt.Errorf("pod %s/%s was replaced: the API server has UID %s, and the runtime has UID %s", namespace, pod, p.UID, uid)
	}
	spec := find(p, container)
	if spec == nil {
		return Granted{}, fmt.Errorf("pod %s/%s has no container %q", namespace, pod, container)
	}
	granted, err := c.byResource(p, spec)
	if err != nil {
		return Granted{}, err
	}
	for _, use := range spec.Resources.Claims {
		bytes, err := c.byClaim(ctx, p, use)
		if err != nil {
			return Granted{}, err
		}
		granted = granted.least(Granted{bytes, "claim " + use.Name})
	}
	return granted, nil
}

// least returns the smaller of g and other. Zero bytes mean that nothing was given, so that the other one is returned.
func (g Granted) least(other Granted) Granted {
	if other.Bytes == 0 || g.Bytes != 0 && g.Bytes <= other.Bytes {
		return g
	}
	return other
}

// find returns a container, init container or ephemeral container of a pod by its name; nil: there is none.
func find(p *corev1.Pod, name string) *corev1.Container {
	for _, list := range [][]corev1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	for i := range p.Spec.EphemeralContainers {
		if p.Spec.EphemeralContainers[i].Name == name {
			return (*corev1.Container)(&p.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		}
	}
	return nil
}

// byResource returns the least that a configured resource gives a container: the resource's limit, or else the pod's annotation of
// that name. An annotation that is not a positive quantity is an error.
func (c *Cluster) byResource(p *corev1.Pod, spec *corev1.Container) (granted Granted, err error) {
	for _, unit := range c.Units {
		n := uint64(0)
		if q, set := spec.Resources.Limits[corev1.ResourceName(unit.Resource)]; set {
			n = uint64(max(q.Value(), 0))
		} else if text, set := p.Annotations[unit.Resource]; set {
			if n, err = Bytes(text); err != nil {
				return Granted{}, fmt.Errorf("annotation %s of pod %s/%s: %w", unit.Resource, p.Namespace, p.Name, err)
			}
		}
		granted = granted.least(Granted{times(n, unit.Bytes), unit.Resource})
	}
	return granted, nil
}

// times returns n times unit, or math.MaxInt64 if the product is larger.
func times(n, unit uint64) uint64 {
	if unit != 0 && n > math.MaxInt64/unit {
		return math.MaxInt64
	}
	return n * unit
}

// byClaim returns the largest capacity "memory" of a device that the container uses of a claim; 0: none has it. A budget holds for
// each device, so that the largest suffices for all.
func (c *Cluster) byClaim(ctx context.Context, p *corev1.Pod, use corev1.ResourceClaim) (most uint64, err error) {
	name := claimName(p, use.Name)
	if name == "" {
		return 0, fmt.Errorf("pod %s/%s has no claim %q yet", p.Namespace, p.Name, use.Name)
	}
	claim, err := c.Client.ResourceV1().ResourceClaims(p.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return 0, fmt.Errorf("claim %s/%s cannot be read from the API server: %w", p.Namespace, name, err)
	}
	if claim.Status.Allocation == nil {
		return 0, fmt.Errorf("claim %s/%s is not allocated yet", p.Namespace, name)
	}
	for _, r := range claim.Status.Allocation.Devices.Results {
		if r.Driver != Driver && uses(use, r) {
			q := r.ConsumedCapacity["memory"]
			most = max(most, uint64(max(q.Value(), 0)))
		}
	}
	return most, nil
}

// uses reports whether a container that uses a claim, or one request of it, gets an allocated device. The result of a request with
// alternatives is named REQUEST/ALTERNATIVE.
func uses(use corev1.ResourceClaim, r resourcev1.DeviceRequestAllocationResult) bool {
	return use.Request == "" || r.Request == use.Request || strings.HasPrefix(r.Request, use.Request+"/")
}

// claimName returns the object name of a claim that the pod's specification calls name; "": the claim is not made yet, or unknown.
func claimName(p *corev1.Pod, name string) string {
	for _, c := range p.Spec.ResourceClaims {
		if c.Name == name && c.ResourceClaimName != nil {
			return *c.ResourceClaimName
		}
	}
	for _, s := range p.Status.ResourceClaimStatuses {
		if s.Name == name && s.ResourceClaimName != nil {
			return *s.ResourceClaimName
		}
	}
	return ""
}
