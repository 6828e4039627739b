package nri

// This file makes the change that gives a container the library. It also tells whether a container has a GPU or a device of gpuarb.

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

// bound reports whether a container has a CDI device of gpuarb. The device's hook opens the job, so that this plug-in does not.
func bound(c *api.Container) bool {
	for _, d := range c.GetCDIDevices() {
		if strings.HasPrefix(d.GetName(), share.Kind) {
			return true
		}
	}
	return false
}

// hasDevice reports whether a container may have been given a GPU. Only then is the API server asked for claims and resources, so that
// pods without a GPU, such as the pod of the API server, start while it does not answer.
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
