package share

// This file computes the budget of a container. If a claim or a resource gave the container memory, that amount is the maximum. An
// annotation of the pod can only lower it. Claims and resources are read in cluster.go.

import (
	"fmt"
	"math"
	"regexp"

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

// quantity matches the quantities that Bytes takes. Kubernetes' own parser takes more forms, and exponents of any size. It computes with a
// number of as many digits as the exponent says, so that "1e-999999999" would use up the node's memory.
var quantity = regexp.MustCompile(`^[+-]?[0-9]{1,19}(\.[0-9]{1,9})?(m|k|[MGTPE]|[KMGTPE]i|[eE][0-9]{1,2})?$`)

// Bytes parses a quantity of Kubernetes, such as 4Gi, 1.5Gi or 500M, that must be a positive, whole number. Its error quotes at most 64
// characters of the text, because annotations can be long. If the text has a suffix such as Ei or Gi, and stands for 2^63 bytes or more,
// the result is 2^63-1, as in Kubernetes. Without such a suffix, 2^63 bytes or more are an error.
func Bytes(text string) (uint64, error) {
	if !quantity.MatchString(text) {
		return 0, fmt.Errorf("%.64q is not a quantity such as 4Gi", text)
	}
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return 0, fmt.Errorf("%.64q is not a quantity such as 4Gi: %w", text, err)
	}
	n := q.Value() // is not the amount of q if q has a fraction or exceeds int64. CmpInt64 finds that
	if n <= 0 || q.CmpInt64(n) != 0 {
		return 0, fmt.Errorf("%.64q is not a whole, positive number of bytes below 2^63", text)
	}
	return uint64(n), nil
}
