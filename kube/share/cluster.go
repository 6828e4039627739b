package share

// This file asks the API server how much GPU memory the scheduler gave a container. The capacity that its claims consume counts, and
// resources that stand for GPU memory. The container's budget is then computed in budget.go.

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Driver is the name of gpuarb's own DRA driver (package dra). byClaim leaves out the devices of this driver, because hooks in their CDI
// specification open the job.
const Driver = "gpu.gpuarb.dev"

// Unit is a resource that stands for GPU memory, and the amount of memory that one unit of the resource stands for.
type Unit struct {
	Resource string // name of an extended resource, or of an annotation with a number
	Bytes    uint64 // bytes of GPU memory of one unit
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

// Granted returns the memory that claims and resources gave a container of a pod. If several of them gave memory, it returns the smallest
// amount. The runtime's UID of the pod, uid, must be that of the API server. Otherwise the pod was replaced, and Granted returns an error.
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
	claims, err := claimsOf(p, spec)
	if err != nil {
		return Granted{}, err
	}
	for _, of := range claims {
		bytes, err := c.byClaim(ctx, p, of)
		if err != nil {
			return Granted{}, err
		}
		granted = granted.least(Granted{bytes, of.by})
	}
	return granted, nil
}

// least returns the smaller of g and other. If one of them has zero bytes, which means that nothing was given, least returns the other.
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

// byResource returns the smallest amount that a resource of c.Units gives a container. The container's limit of the resource counts, or
// else the pod's annotation with the name of the resource. An annotation that is not a positive quantity is an error.
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

// claimed is a claim that a container uses, whole or in part.
type claimed struct {
	name     string   // name of the ResourceClaim object
	requests []string // names of the requests in the claim whose devices the container gets; "": it gets the devices of all requests
	by       string   // "claim NAME" or the name of the extended resource, as in the pod's specification; for messages
}

// with adds a request of a claim to the claims in all. by is used if it is the first request of that claim.
func with(all []claimed, name, request, by string) []claimed {
	i := slices.IndexFunc(all, func(of claimed) bool { return of.name == name })
	if i < 0 {
		return append(all, claimed{name, []string{request}, by})
	}
	all[i].requests = append(all[i].requests, request)
	return all
}

// claimsOf returns the claims that the container spec uses. First come the claims that its specification names. If DRA drivers provide
// extended resources of the pod, the scheduler makes one further claim for the pod. The pod's status then says which requests of that claim
// belong to which container. claimsOf returns an error if Kubernetes has not yet made the object of a claim.
func claimsOf(p *corev1.Pod, spec *corev1.Container) (all []claimed, err error) {
	for _, use := range spec.Resources.Claims {
		name, made := claimName(p, use.Name)
		if !made {
			return nil, fmt.Errorf("pod %s/%s has no claim %q yet", p.Namespace, p.Name, use.Name)
		}
		if name != "" {
			all = with(all, name, use.Request, "claim "+use.Name)
		}
	}
	if extended := p.Status.ExtendedResourceClaimStatus; extended != nil {
		for _, r := range extended.RequestMappings {
			if r.ContainerName == spec.Name {
				all = with(all, extended.ResourceClaimName, r.RequestName, r.ResourceName)
			}
		}
	}
	return all, nil
}

// claimName returns the name of the ResourceClaim object for the claim that the pod's specification calls name. The specification
// names the object, or, if Kubernetes makes the object from a template, the pod's status does. An entry of the status without an
// object means that the pod needs no object. Then claimName returns "" and true. The result made is false if the status has no entry yet,
// or the pod has no such claim.
func claimName(p *corev1.Pod, name string) (object string, made bool) {
	for _, c := range p.Spec.ResourceClaims {
		if c.Name == name && c.ResourceClaimName != nil {
			return *c.ResourceClaimName, true
		}
	}
	for _, s := range p.Status.ResourceClaimStatuses {
		switch {
		case s.Name == name && s.ResourceClaimName != nil:
			return *s.ResourceClaimName, true
		case s.Name == name:
			return "", true
		}
	}
	return "", false
}

// byClaim returns the largest capacity "memory" that a device of a claim gives the container, in bytes; 0: no device has that capacity. One
// budget holds for each device of the container, so that the largest amount leaves no device with too little.
func (c *Cluster) byClaim(ctx context.Context, p *corev1.Pod, of claimed) (most uint64, err error) {
	claim, err := c.Client.ResourceV1().ResourceClaims(p.Namespace).Get(ctx, of.name, metav1.GetOptions{})
	if err != nil {
		return 0, fmt.Errorf("claim %s/%s cannot be read from the API server: %w", p.Namespace, of.name, err)
	}
	if claim.Status.Allocation == nil {
		return 0, fmt.Errorf("claim %s/%s is not allocated yet", p.Namespace, of.name)
	}
	for _, r := range claim.Status.Allocation.Devices.Results {
		if r.Driver != Driver && of.has(r) {
			q := r.ConsumedCapacity["memory"]
			most = max(most, uint64(max(q.Value(), 0)))
		}
	}
	return most, nil
}

// has reports whether the container that uses the claim gets the allocated device r. If a request lists alternatives, r.Request is
// REQUEST/ALTERNATIVE.
func (of claimed) has(r resourcev1.DeviceRequestAllocationResult) bool {
	return slices.ContainsFunc(of.requests, func(request string) bool {
		return request == "" || r.Request == request || strings.HasPrefix(r.Request, request+"/")
	})
}
