package nri

// This file gives a container the library, and tells which containers have a GPU.

import (
	"strings"

	"github.com/containerd/nri/pkg/api"

	"github.com/gpuarb/gpuarb/kube/share"
)

// adjustment returns the change that gives a container the variables and mounts.
func adjustment(edits share.Edits) *api.ContainerAdjustment {
	a := &api.ContainerAdjustment{}
	for _, variable := range edits.Env {
		name, value, _ := strings.Cut(variable, "=")
		a.AddEnv(name, value)
	}
	for _, m := range edits.Mounts {
		a.AddMount(&api.Mount{Source: m.Host, Destination: m.Container, Type: "bind", Options: m.Options})
	}
	return a
}

// bound reports whether a CDI device of gpuarb opens the job of a container: its hook does what this plug-in would.
func bound(c *api.Container) bool {
	for _, d := range c.GetCDIDevices() {
		if strings.HasPrefix(d.GetName(), share.Kind) {
			return true
		}
	}
	return false
}

// hasDevice reports whether a container may have been given a GPU. Only then the API server is asked for its claims and resources, so that
// pods without a GPU, such as the API server's own, start without it.
func hasDevice(c *api.Container) bool {
	for _, d := range c.GetLinux().GetDevices() {
		if strings.HasPrefix(d.GetPath(), "/dev/nvidia") || strings.HasPrefix(d.GetPath(), "/dev/dri/") {
			return true
		}
	}
	for _, variable := range c.GetEnv() {
		if value, set := strings.CutPrefix(variable, "NVIDIA_VISIBLE_DEVICES="); set && value != "void" && value != "none" && value != "" {
			return true
		}
	}
	return len(c.GetCDIDevices()) > 0
}
