// Package share says what a container on a node is given: how many bytes of each GPU, and which files.
//
// budget.go reads the bytes from the pod and from the claims of the cluster. edits.go reads the files from the CDI specification that
// `gpuarb cdi generate` wrote on the node. Package nri uses both.
//
// The package asks the API server of the cluster, and nothing else. It does not know the daemon.
package share
