package share

// This file computes the budget of a container. The budget that a claim or a resource gave is a maximum; an annotation of the pod can
// only lower it. cluster.go reads claims and resources.

import (
	"fmt"
	"math"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Annotation is the prefix of the annotation that names a budget. The name of the container follows a slash:
// `memory.gpuarb.dev/main: 4Gi`. Without a container's name it holds for each container of the pod.
const Annotation = "memory.gpuarb.dev"

// Unlimited is the node's maximum for annotations if there is none (Compute).
const Unlimited = math.MaxUint64

// Granted has the bytes that a claim or a resource gave a container. Zero: nothing.
type Granted struct {
	Bytes uint64 // bytes of each GPU
	By    string // what gave them, for messages: "claim gpu", "nvidia.com/gpumem"
}

// Budget is the budget of a container.
type Budget struct {
	Bytes uint64 // bytes of each GPU
	Text  string // where it comes from, for messages
}

// Compute returns the budget of a container, or false if nothing names a budget. most is the node's maximum for containers that name a budget
// by annotation alone, in bytes. An annotation that is not a positive quantity is an error.
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

// Bytes parses a positive quantity of Kubernetes, such as 4Gi or 500M.
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
