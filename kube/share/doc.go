// Package share computes how many bytes of each GPU a container on a node gets. It also reads the variables, mounts and hooks that every
// container with a budget gets.
//
// cluster.go reads from the API server what claims and resources gave the container. budget.go computes the budget from that and from
// the pod's annotations.
//
// edits.go reads variables, mounts and hooks from the file that `gpuarb cdi generate` wrote. Package nri uses all files. Package dra uses
// edits.go, and the name of its driver in cluster.go.
//
// The package talks to the API server, and never to the daemon.
package share
