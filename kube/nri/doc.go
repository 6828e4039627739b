// Package nri is gpuarb's plug-in for container runtimes: containerd and CRI-O tell it of each container, through the Node Resource
// Interface (NRI, https://github.com/containerd/nri). It gives a container the library, opens the container's job before its first
// process runs, and closes the job at its end. cmd/gpuarb-nri is the program.
//
// plugin.go has the events of the runtime, adjust.go what is changed in a container, cgroup.go the container's cgroup.
//
// The runtime waits for each answer, two seconds by default, and treats a plug-in that answers later as gone. So no request here waits for
// memory: what does not fit is an error, and the kubelet tries again. The plug-in keeps little state, because each event describes its
// container, and the daemon has the jobs. It remembers only the containers that ran when it connected, to open their jobs later.
package nri
