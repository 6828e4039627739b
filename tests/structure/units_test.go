package structure

import (
	"regexp"
	"strings"
	"testing"
)

// This file checks that no setting of the systemd units hides /gpu from users. figures_test.go checks that the
// daemon does what its units promise.

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
