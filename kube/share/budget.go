package share

// This file computes the budget of a container. If a claim or a resource gave the container memory, that amount is the maximum. An
// annotation of the pod can only lower it. Claims and resources are read in cluster.go.

import (
	"fmt"
	"math"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Annotation is the annotation of a pod that names a budget for each of the pod's containers. With a slash and the name of a container
// after it, as in `memory.gpuarb.dev/main: 4Gi`, the annotation holds for that container alone, and replaces the general annotation.
const Annotation = "memory.gpuarb.dev"

// Unlimited is the value of a maximum in bytes that means: there is no maximum. Compute takes it as most.
const Unlimited = math.MaxUint64

// Granted is memory that a claim or a resource gave a container. The zero value: nothing was given.
type Granted struct {
	Bytes uint64 // bytes of each GPU
	By    string // name of the claim or resource, for messages: "claim gpu", "nvidia.com/gpumem"
}

// Budget is the budget of a container.
type Budget struct {
	Bytes uint64 // bytes of each GPU
	Text  string // what named the budget, for messages
}

// Compute returns the budget of a container, or false if nothing names a budget. The node's maximum, most, is in bytes. It limits a
// container whose budget comes from an annotation alone. An annotation must be a positive quantity.
func Compute(annotations map[string]string, container string, granted Granted, most uint64) (Budget, bool, error) {
	key := Annotation + "/" + container
	value, set := annotations[key]
	if !set {
		key = Annotation
		value, set = annotations[key]
	}
	switch {
	case !set && granted.Bytes == 0:
		return Budget{}, false, nil
	case !set:
		return Budget{granted.Bytes, granted.By}, true, nil
	}
	asked, err := Bytes(value)
	if err != nil {
		return Budget{}, false, fmt.Errorf("annotation %s: %w", key, err)
	}
	if granted.Bytes != 0 && granted.Bytes < asked {
		return Budget{granted.Bytes, granted.By + ", below annotation " + key}, true, nil
	}
	if granted.Bytes == 0 && most < asked {
		return Budget{most, "--max of the node, below annotation " + key}, true, nil
	}
	return Budget{asked, "annotation " + key}, true, nil
}

// Bytes parses a quantity of Kubernetes, such as 4Gi or 500M, that must be a positive, whole number.
func Bytes(text string) (uint64, error) {
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return 0, fmt.Errorf("%q is not a quantity such as 4Gi", text)
	}
	n, exact := q.AsInt64()
	if !exact || n <= 0 {
		return 0, fmt.Errorf("%q is not a whole, positive number of bytes", text)
	}
	return uint64(n), nil
}
