// Package container lists what holds a container's programs to limits: files, variables, and the
// hooks that open and close the container's job. cmd/gpuarb calls it for `gpuarb cdi
// generate`, and for the advice of `gpuarb run` before a container engine.
//
// share.go has the one list of files and variables. cdi.go writes it as a CDI specification, which
// engines read. engine.go writes it as flags of podman and docker, for engines that are not given a
// CDI device.
//
// The package starts nothing and asks no daemon. It sets no limits: the hooks ask the daemon, which
// decides.
package container
