// Package dra is gpuarb's driver for Kubernetes' dynamic resource allocation (DRA). It offers the GPUs of a node to the scheduler as
// devices. Several claims can share a device: each claim takes a part of its memory. When a pod on the node uses a claim, the driver writes
// a CDI specification for the claim. A container runtime reads the specification and puts gpuarb's library into the container. It also runs
// a hook, which opens the claim's job before the container's first process runs. kube/cmd/gpuarb-dra is the program.
//
// driver.go answers the kubelet. node.go reads the GPUs from the daemon, and offer.go describes them to the scheduler.
//
// claim.go computes the budget of a claim, and file.go writes the claim's CDI specification.
//
// The scheduler alone decides which claim gets which device. The driver keeps no state over a restart. The claim's object
// in the API server says what was allocated to the claim, and the daemon knows the open jobs.
package dra
