// Package dra is gpuarb's driver for Kubernetes' dynamic resource allocation (DRA). It offers the GPUs of a node to the scheduler as devices that
// several claims share by memory. For each claim that a pod on the node uses, it writes a CDI specification. The specification gives
// containers the library, and a hook opens the claim's job before the container's first process. cmd/gpuarb-dra is the program.
//
// driver.go answers the kubelet. node.go reads the GPUs from the daemon. The description for the scheduler is in offer.go.
//
// claim.go computes the budget of a claim, and file.go writes the claim's CDI specification.
//
// The scheduler alone decides which claim gets which device. The driver keeps no state: a claim's object in the API server says what
// was allocated, and the daemon has the jobs.
package dra
