package accounting_test

import (
	"testing"

	"github.com/gpuarb/gpuarb/accounting"
)

// Paths of cgroups are compared folder by folder. A path that is empty, relative, or outside the daemon's cgroup namespace counts as the
// root cgroup. arbiter/cgroups_test.go tests the limits of cgroups.

func TestInCgroup(t *testing.T) {
	for _, c := range []struct {
		at, of string
		want   bool
	}{
		{"/a", "/a", true}, {"/a/b", "/a", true}, {"/ab", "/a", false}, {"/a", "/a/b", false},
		{"/", "/", true}, {"/a", "/", true}, {"/", "/a", false}, {"", "/", true}, {"", "/a", false},
	} {
		if got := accounting.InCgroup(c.at, c.of); got != c.want {
			t.Errorf("%q in %q: %v", c.at, c.of, got)
		}
	}
}

func TestCgroupOf(t *testing.T) {
	for at, want := range map[string]string{"/a/b": "/a/b", "": "/", "/": "/", "/../a": "/", "/..": "/", "/..a": "/..a", "a": "/", "/a/../b": "/"} {
		if got := accounting.CgroupOf(at); got != want {
			t.Errorf("%q: %q, want %q", at, got, want)
		}
	}
}
