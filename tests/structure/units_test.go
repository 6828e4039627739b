package structure

import (
	"regexp"
	"strings"
	"testing"
)

// This file checks that no setting of the systemd units hides /gpu from users. figures_test.go checks that the
// daemon does what its units promise.

// hidesMount matches the settings that give a system unit a mount namespace of its own (systemd.exec(5)).
// A mount inside it is invisible to the machine. ProtectClock= is included because it
// restricts the list of devices, and so closes the GPUs.
var hidesMount = regexp.MustCompile(`^(PrivateTmp|PrivateDevices|PrivateMounts|PrivateUsers|PrivateIPC|` +
	`ProtectSystem|ProtectHome|ProtectProc|ProcSubset|ProtectKernel\w+|ProtectControlGroups|ProtectClock|` +
	`ReadOnlyPaths|ReadWritePaths|InaccessiblePaths|ExecPaths|NoExecPaths|BindPaths|BindReadOnlyPaths|` +
	`TemporaryFileSystem|RootDirectory|RootImage|MountFlags|MountAPIVFS|MountImages|ExtensionImages|` +
	`PrivateNetwork|DynamicUser)=`)

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
		{"systemd/gpuarbd.service", hidesMount},
		{"systemd/user/gpuarbd.service", dropsPrivileges},
	}
	for _, test := range tests {
		for line := range strings.Lines(read(t, test.name)) {
			if test.banned.MatchString(line) {
				t.Errorf("%s: %s keeps /gpu from being seen", test.name, strings.TrimSpace(line))
			}
		}
	}
}
