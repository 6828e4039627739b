// Package share computes what a container on a node gets: how many bytes of each GPU, and which variables and mounts.
//
// cluster.go reads from the API server what claims and resources gave the container. budget.go computes the budget from that and from
// the pod's annotations.
//
// edits.go reads variables, mounts and hooks from the file that `gpuarb cdi generate` wrote. Package nri uses all files, and package dra
// uses edits.go.
//
// The package asks the API server, and never the daemon.
package share
