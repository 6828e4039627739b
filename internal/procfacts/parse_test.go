package procfacts

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
)

// Texts below /proc are parsed as the kernel writes them, and texts that the kernel cannot have written are refused.
// root_test.go parses stat and mountinfo, and facts_test.go reads real processes.

const statusText = "Name:\tev\\nUid: 0 0 0 0\nUmask:\t0022\nState:\tS (sleeping)\nTgid:\t4711\nPid:\t4712\n" +
	"Uid:\t1000\t1001\t1002\t1003\nGid:\t100\t101\t102\t103\nGroups:\t4 24 4294967294 \nNStgid:\t4711\t18\t2\nNSpid:\t4711\t17\t1\nSeccomp:\t0\n"

func TestParseStatus(t *testing.T) {
	got, err := parseStatus([]byte(statusText))
	want := status{name: "ev\nUid: 0 0 0 0", tgid: 4711, nspid: 1, uid: 1001, gid: 101, groups: []uint32{4, 24, 4294967294}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	if old, err := parseStatus([]byte(strings.Replace(statusText, "NSpid", "Other", 1))); err != nil || old.nspid != 0 {
		t.Errorf("of a kernel that does not say: %+v, %v", old, err)
	}
	for name, text := range map[string]string{
		"nspid":      strings.Replace(statusText, "\t17\t1\n", "\t17\tx\n", 1),
		"empty":      "",
		"no groups":  strings.Replace(statusText, "Groups:", "Other:", 1),
		"twice":      statusText + "Tgid:\t1\n",
		"negative":   strings.Replace(statusText, "4711", "-1", 1),
		"too large":  strings.Replace(statusText, "1001", "4294967296", 1),
		"few":        strings.Replace(statusText, "\t1003", "", 1),
		"no number":  strings.Replace(statusText, "24", "x", 1),
		"huge group": "Groups:\t" + strings.Repeat("1", 2<<20),
	} {
		if got, err := parseStatus([]byte(text)); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func FuzzParseStatus(f *testing.F) {
	f.Add([]byte(statusText))
	f.Add([]byte("Tgid:\nUid:\nGid:\nGroups:\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if s, err := parseStatus(data); err == nil && s.tgid < 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestCgroupsOf(t *testing.T) {
	table := []struct {
		name string
		text string
		want string
	}{
		{"none", "", "/"},
		{"v2", "0::/user.slice/a.scope\n", "/user.slice/a.scope"},
		{"v2 root", "0::/\n", "/"},
		{"removed", "0::/a.service (deleted)\n", "/a.service"},
		{"colons", "0::/a:b::c\n", "/a:b::c"},
		{"hybrid", "9:memory:/longer/than/that\n1:name=systemd:/b.service\n0::/\n", "/b.service /longer/than/that"},
		{"v2 first", "1:name=systemd:/longer/b.service\n0::/a\n", "/a /longer/b.service"},
		{"v1 without systemd", "2:cpu,cpuacct:/x\n3:pids:/\n4:memory:/docker/y\n5:cpuset:/x\n0::/\n", "/docker/y /x"},
		{"rubbish", "0\n\n:\n0:", "/"},
	}
	for _, c := range table {
		if got := strings.Join(cgroupsOf([]byte(c.text)), " "); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestUnitAndContainer(t *testing.T) {
	id := strings.Repeat("0123456789abcdef", 4)
	inner := strings.Repeat("fedcba9876543210", 4)
	for cgroup, want := range map[string][2]string{
		"/":                            {},
		"/system.slice/ollama.service": {"ollama.service", ""},
		"/user.slice/user-1000.slice/session-3.scope":                               {"session-3.scope", ""},
		"/user.slice/user-1000.slice/user@1000.service/app.slice/app-x.scope/sub":   {"app-x.scope", ""},
		"/system.slice/docker-" + id + ".scope":                                     {"docker-" + id + ".scope", id},
		"/docker/" + id:                                                             {"", id},
		"/docker/" + id + "/docker/" + inner + "/x":                                 {"", inner},
		"/machine.slice/libpod-" + id + ".scope/container":                          {"libpod-" + id + ".scope", id},
		"/kubepods.slice/kubepods-pod1.slice/cri-containerd-" + id + ".scope":       {"cri-containerd-" + id + ".scope", id},
		"/system.slice/containerd.service/kubepods-pod1.slice:cri-containerd:" + id: {"containerd.service", id},
		"/docker/" + id[1:]:                                                         {},
		"/docker/" + id + "0":                                                       {},
		"/docker/" + strings.ToUpper(id):                                            {},
	} {
		if got := [2]string{unitOf(cgroup), containerOf(cgroup)}; got != want {
			t.Errorf("%s: %q, want %q", cgroup, got, want)
		}
	}
}

func TestJoinArguments(t *testing.T) {
	for in, want := range map[string]string{
		"":                                "",
		"\x00\x00":                        "",
		"a\x00b c\x00\x00d\x00":           "a b c  d",
		"title: no terminator":            "title: no terminator",
		"broken \xff\x00":                 "broken \uFFFD",
		"evil\nroot 1\x1b[2J\x00\x00\x00": "evil\nroot 1\x1b[2J",
	} {
		if got := joinArguments([]byte(in)); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

const mapsText = `55d0a0000000-55d0a0001000 r--p 00000000 fd:01 77                         /usr/bin/python3
7f1000000000-7f1000001000 rw-s 00000000 00:01 4711                       /memfd:gpuarb-lease (deleted)
7f1000002000-7f1000003000 rw-p 00000000 00:00 0
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0                          [stack]
`

func TestFindMapping(t *testing.T) {
	table := []struct {
		inode uint64
		name  string
		want  bool
	}{
		{4711, "gpuarb-lease", true},
		{4712, "gpuarb-lease", false},
		{4711, "gpuarb", false},
		{77, "gpuarb-lease", false},
		{0, "", false},
		{0, "[stack]", false},
	}
	for _, c := range table {
		got, err := findMapping(strings.NewReader(mapsText), c.inode, c.name)
		if got != c.want || err != nil {
			t.Errorf("%d %q: %v, %v", c.inode, c.name, got, err)
		}
	}
	if _, err := findMapping(strings.NewReader(strings.Repeat("x", 1<<20)), 1, "a"); err == nil {
		t.Error("an endless line was read to its end")
	}
}

func FuzzFindMapping(f *testing.F) {
	f.Add([]byte(mapsText), uint64(4711), "gpuarb-lease")
	f.Add([]byte("    \n\n1 2 3 4 5"), uint64(5), "")
	f.Fuzz(func(t *testing.T, data []byte, inode uint64, name string) {
		found, _ := findMapping(bytes.NewReader(data), inode, name)
		if found && !bytes.Contains(data, []byte("/memfd:"+name+" (deleted)")) {
			t.Errorf("%q was found in %q", name, data)
		}
	})
}

func FuzzCgroupNames(f *testing.F) {
	f.Add("/system.slice/docker-" + strings.Repeat("a", 64) + ".scope")
	f.Fuzz(func(t *testing.T, cgroup string) {
		if id := containerOf(cgroup); id != "" && (len(id) != containerIDLen || !strings.Contains(cgroup, id)) {
			t.Errorf("container %q of %q", id, cgroup)
		}
		if unit := unitOf(cgroup); strings.Contains(unit, "/") || !strings.Contains(cgroup, unit) {
			t.Errorf("unit %q of %q", unit, cgroup)
		}
	})
}
