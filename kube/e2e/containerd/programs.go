//go:build programs

// Package containerd names the programs of containerd that kube/build.mk builds for the cluster. The package is never built itself.
package containerd

import (
	_ "github.com/containerd/containerd/v2/cmd/containerd"
	_ "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2"
	_ "github.com/containerd/containerd/v2/cmd/ctr"
)
