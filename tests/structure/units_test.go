package structure

import (
	"regexp"
	"strings"
	"testing"
)

// Each of these gives a system unit a mount namespace of its own (systemd.exec(5)),
// from which a mount does not reach the machine. ProtectClock= is here because it
// closes the list of devices, and with it the GPUs.
var hidesMount = regexp.MustCompile(`^(PrivateTmp|PrivateDevices|PrivateMounts|PrivateUsers|PrivateIPC|` +
	`ProtectSystem|ProtectHome|ProtectProc|ProcSubset|ProtectKernel\w+|ProtectControlGroups|ProtectClock|` +
	`ReadOnlyPaths|ReadWritePaths|InaccessiblePaths|ExecPaths|NoExecPaths|BindPaths|BindReadOnlyPaths|` +
	`TemporaryFileSystem|RootDirectory|RootImage|MountFlags|MountAPIVFS|MountImages|ExtensionImages|` +
	`PrivateNetwork|DynamicUser)=`)

// In a user's unit each of these sets no-new-privileges, under which the setuid
// helper cannot mount.
var dropsPrivileges = regexp.MustCompile(`^(NoNewPrivileges|SystemCall\w+|Restrict\w+|LockPersonality|` +
	`MemoryDenyWriteExecute|CapabilityBoundingSet|Private\w+|Protect\w+)=`)

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
