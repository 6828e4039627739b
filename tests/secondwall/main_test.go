package secondwall

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/internal/report"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file has what the tests share: machines, jobs of cgroups, and what the commands say.

const (
	on  = "schema_version = 1\n[defaults]\ndriver_limits = true\n[[device]]\ncontext_reserve = \"0\"\n"
	off = "schema_version = 1\n[[device]]\ncontext_reserve = \"0\"\n"
)

// kernelMachine returns a machine with the devices of a dmem and no other.
func kernelMachine(t *testing.T, f *dmem, o rig.Options) *rig.Machine {
	t.Helper()
	o.Devices, o.NoMount, o.Sim, o.Daemon = "1G", true, []string{"SIMCUDA_ABSENT=0"}, []string{"--sysfs", f.sysfs}
	if o.Config == "" {
		o.Config = on
	}
	return rig.New(t, o)
}

// wall returns the limit for a budget in MiB, and overhead: both, a tenth and 256 MiB, rounded up to 2 MiB.
func wall(mib int) string {
	const granule = 2 << 20
	bytes := mib<<20 + mib<<20/10 + 256<<20
	return strconv.Itoa((bytes + granule - 1) / granule * granule)
}

// job runs a command of `gpuarb job`, which must succeed.
func job(t *testing.T, m *rig.Machine, args ...string) {
	t.Helper()
	if got := rig.Run(t, m.Gpuarb(append([]string{"job"}, args...)...)); got.Code != 0 {
		t.Fatalf("gpuarb job %s: %d, %s%s", strings.Join(args, " "), got.Code, got.Stdout, got.Stderr)
	}
}

func open(t *testing.T, m *rig.Machine, c *rig.Cgroup, memory, name string) {
	t.Helper()
	job(t, m, "open", "--cgroup", c.Path, "--memory", memory, "--name", name)
}

// becomes waits until a folder has a limit.
func becomes(t *testing.T, in *folder, region, want string) {
	t.Helper()
	rig.Eventually(t, region+" has the limit "+want, func() bool { return in.limit(region) == want })
}

// listed returns the row of `gpuarb job list` for a job and a device.
func listed(t *testing.T, m *rig.Machine, name string, device int) report.Binding {
	t.Helper()
	var rows []report.Binding
	if err := json.Unmarshal([]byte(rig.Run(t, m.Gpuarb("job", "list", "--json")).Stdout), &rows); err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if r.Name == name && int(r.Device) == device {
			return r
		}
	}
	t.Fatalf("gpuarb job list: no job %s on device %d: %+v", name, device, rows)
	return report.Binding{}
}

// says waits until the output of a command contains all texts.
func says(t *testing.T, m *rig.Machine, args []string, texts ...string) {
	t.Helper()
	var last string
	rig.Eventually(t, "gpuarb "+strings.Join(args, " ")+" says "+strings.Join(texts, ", "), func() bool {
		last = rig.Run(t, m.Gpuarb(args...)).Stdout
		for _, text := range texts {
			if !strings.Contains(last, text) {
				return false
			}
		}
		return true
	})
}

// reconfigure writes the configuration, which the daemon reads at its next start or reload.
func reconfigure(t *testing.T, m *rig.Machine, config string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(m.Dir, "gpuarb.toml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
}
