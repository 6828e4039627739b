package structure

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/bounded"
)

// This file checks that no setting of the systemd units hides /gpu from users. It compares docs/admin/packages.md with what
// the sandbox leaves open. figures_test.go checks that the daemon does what its units promise.

// closesMachine matches the settings with which a system unit would not see the machine's devices, processes or users
// (systemd.exec(5)). ProtectClock= is included because it restricts the list of devices, and so closes the GPUs.
var closesMachine = regexp.MustCompile(`^(PrivateDevices|PrivateUsers|PrivateIPC|ProtectProc|ProcSubset|ProtectClock|` +
	`DeviceAllow|DevicePolicy|RootDirectory|RootImage|MountFlags|MountAPIVFS|PrivateNetwork|DynamicUser)=`)

// makesMount matches the line by which another process mounts, because the unit has a mount namespace of its own.
var makesMount = regexp.MustCompile(`(?m)^ExecStartPre=\+-/usr/bin/gpuarbd --make-mount$`)

// dropsPrivileges matches the settings that set no-new-privileges in a user's unit. Under it the setuid
// helper of FUSE cannot mount.
var dropsPrivileges = regexp.MustCompile(`^(NoNewPrivileges|SystemCall\w+|Restrict\w+|LockPersonality|` +
	`MemoryDenyWriteExecute|CapabilityBoundingSet|Private\w+|Protect\w+)=`)

// TestUnitsLeaveTheMountVisible: no setting of the units hides /gpu from the machine, or stops a user's daemon from mounting it.
func TestUnitsLeaveTheMountVisible(t *testing.T) {
	tests := []struct {
		name   string
		banned *regexp.Regexp
	}{
		{"systemd/gpuarbd.service", closesMachine},
		{"systemd/user/gpuarbd.service", dropsPrivileges},
	}
	for _, test := range tests {
		for line := range strings.Lines(read(t, test.name)) {
			if test.banned.MatchString(line) {
				t.Errorf("%s: %s keeps /gpu from being seen, or the daemon from what it must see", test.name, strings.TrimSpace(line))
			}
		}
	}
	if !makesMount.MatchString(read(t, "systemd/gpuarbd.service")) {
		t.Error("systemd/gpuarbd.service does not mount outside of its namespace")
	}
}

// TestExposuresAreExplained: docs/admin/packages.md has the figure that `systemd-analyze security` gives to the daemon's unit, and names
// each exposure that the tool counts. The figure is that of Debian 12's systemd.
func TestExposuresAreExplained(t *testing.T) {
	analyze := func(flags ...string) string {
		t.Helper()
		cmd := bounded.Command(t, bounded.Patience, "systemd-analyze", append(flags, "security", "--offline=true", "--no-pager", "../../systemd/gpuarbd.service")...)
		cmd.Env = append(cmd.Environ(), "LC_ALL=C")
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	page := read(t, "docs/admin/packages.md")
	figure := regexp.MustCompile(`Overall exposure level for gpuarbd.service: ([0-9.]+)`).FindStringSubmatch(analyze())
	if figure == nil || !strings.Contains(page, "says "+figure[1]+",") {
		t.Errorf("docs/admin/packages.md lacks the tool's figure %q", figure)
	}
	var settings []struct {
		Name     string
		Exposure *string // nil: not counted
	}
	if err := json.Unmarshal([]byte(analyze("--json=short")), &settings); err != nil {
		t.Fatal(err)
	}
	open := 0
	for _, s := range settings {
		if s.Exposure == nil {
			continue
		}
		open++
		if !strings.Contains(page, "`"+s.Name+"`") {
			t.Errorf("docs/admin/packages.md does not explain %s (%s)", s.Name, *s.Exposure)
		}
	}
	if open == 0 {
		t.Error("the tool counts no exposure")
	}
}
