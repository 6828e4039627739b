package gpufs

import (
	"os"
	"testing"

	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// This file checks the folders of cgroups: which there are, what their files hold, and where a written limit goes.
// control_test.go has the other limits.

// inCgroups returns a state with clients in cgroups.
func inCgroups() *fakeView {
	v := &fakeView{s: sample()}
	v.s.Processes[0].Cgroup, v.s.Leases[0].Cgroup = "/user.slice/ann's box.scope", "/user.slice/ann's box.scope"
	v.s.Processes[1].Cgroup = "/user.slice/memory.max" // no cgroup of the kernel can have the name of one of its files
	v.s.Processes[2].Cgroup, v.s.Leases[1].Cgroup, v.s.Leases[2].Cgroup = "/../bob", "/../bob", "/../bob"
	v.s.Budgets = []figures.BudgetState{{Cgroup: "/job.slice/a", Devices: []figures.BudgetDeviceState{{Max: 3 * gib}}}}
	return v
}

// TestCgroups: the tree has a folder for each cgroup with clients or a limit, and for its parents. Clients outside
// the daemon's cgroup namespace are in the root, which has no limit.
func TestCgroups(t *testing.T) {
	_, mnt := mountView(t, inCgroups())
	root := mnt + "/cgroups"
	for of, want := range map[string]string{
		"":                            "cgroup.procs\njob.slice\nmemory.current\nstreams.current\nuser.slice\n",
		"/job.slice":                  "a\ncgroup.procs\nmemory.current\nmemory.max\nstreams.current\n",
		"/user.slice":                 "ann's box.scope\ncgroup.procs\nmemory.current\nmemory.max\nstreams.current\n",
		"/user.slice/ann's box.scope": "cgroup.procs\nmemory.current\nmemory.max\nstreams.current\n",
	} {
		if got := output(t, "ls", root+of); got != want {
			t.Errorf("%s lists %q, want %q", of, got, want)
		}
	}
	for file, want := range map[string]string{
		"/memory.current":                               "3221225984\n",
		"/cgroup.procs":                                 "300\n",
		"/user.slice/memory.current":                    "2147483648\n",
		"/user.slice/memory.max":                        "max\n",
		"/user.slice/ann's box.scope/../memory.current": "2147483648\n",
		"/user.slice/ann's box.scope/cgroup.procs":      "100\n",
		"/job.slice/a/memory.max":                       "3221225472\n",
		"/job.slice/a/cgroup.procs":                     "",
	} {
		if got := output(t, "cat", root+file); got != want {
			t.Errorf("%s holds %q, want %q", file, got, want)
		}
	}
	for _, name := range []string{"/memory.max", "/bob", "/job.slice/b", "/user.slice/ann's"} {
		if _, _, err := run(t, "stat", root+name); err == nil {
			t.Errorf("%s is there", name)
		}
	}
}

// TestCgroupGone: the folder of a cgroup disappears with its last client and limit.
func TestCgroupGone(t *testing.T) {
	v := inCgroups()
	_, mnt := mountView(t, v)
	file := mnt + "/cgroups/job.slice/a/memory.max"
	output(t, "cat", file)
	v.change(func(s *figures.Snapshot) { s.Budgets = nil })
	if _, err := os.ReadFile(file); err == nil {
		t.Error("it is there")
	}
	if got := output(t, "ls", mnt+"/cgroups"); got != "cgroup.procs\nmemory.current\nstreams.current\nuser.slice\n" {
		t.Errorf("%q", got)
	}
}

// TestCgroupLimitIsWritten: a write to memory.max becomes one call of Control.Set, with the cgroup's path.
func TestCgroupLimitIsWritten(t *testing.T) {
	v := inCgroups()
	_, mnt := mountView(t, v)
	output(t, "sh", "-c", `echo 2G > "$0"`, mnt+"/cgroups/user.slice/ann's box.scope/memory.max")
	want := Setting{Of: rules.Owner{Kind: rules.OfCgroup, Path: "/user.slice/ann's box.scope"}, Device: rules.AllDevices, Name: "memory.max", Value: "2G"}
	var written []Setting
	v.change(func(*figures.Snapshot) { written = v.written })
	if len(written) != 1 {
		t.Fatalf("%+v", written)
	}
	got := written[0]
	got.UID, got.By = 0, 0
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if _, _, err := run(t, "sh", "-c", `echo 2G > "$0"`, mnt+"/cgroups/user.slice/memory.current"); err == nil {
		t.Error("written to memory.current")
	}
}
