package nri

import "testing"

// TestCgroupPath: both ways in which runtimes name cgroups lead to the path that the kernel has.
func TestCgroupPath(t *testing.T) {
	for name, want := range map[string]string{
		"/kubepods/burstable/pod1/c1":                     "/kubepods/burstable/pod1/c1",
		"kubepods-burstable-pod1.slice:cri-containerd:c1": "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice/cri-containerd-c1.scope",
		"system.slice:crio:c1":                            "/system.slice/crio-c1.scope",
		"-.slice:crio:c1":                                 "/crio-c1.scope",
		"k8s.io/c1":                                       "/k8s.io/c1",
	} {
		if got := cgroupPath(name); got != want {
			t.Errorf("%s is at %s, want %s", name, got, want)
		}
	}
}
