package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// Settings that are allowed, but probably wrong on this machine, get a warning: unknown users and
// devices, rules that are never used, forgotten units. mistake_test.go tests settings that are
// refused.

// TestWarnings checks the warnings about allowed but wrong settings, on a machine with two cards,
// the users ann and bob, and the group students.
func TestWarnings(t *testing.T) {
	machine := Machine{
		Devices: []rules.Device{{Index: 0, Vendor: "nvidia", UUID: "GPU-a", PCI: "0000:01:00.0", Total: 8 << 30},
			{Index: 1, Vendor: "nvidia", UUID: "GPU-b", PCI: "0000:02:00.0", Total: 4 << 30},
			{Index: 2, Vendor: "cpu", UUID: "CPU-c", Total: 64 << 30}},
		User:    func(name string) bool { return name == "ann" || name == "bob" },
		Group:   func(name string) bool { return name == "students" },
		Program: func(path string) bool { return path == "/usr/bin/curl" },
	}
	for name, c := range map[string]struct{ text, want string }{
		"nothing": {"[defaults]\nmemory.max = \"4G\"\nmemory.min = 0\n[[device]]\nmatch.index = 1\nreserve = \"50%\"\n[[device]]\nmatch.vendor = \"nvidia\"\n" +
			"[[rule]]\nmatch.user = \"ann\"\n[[rule]]\nmatch.user = \"b*\"\n[[rule]]\nmatch.group = \"students\"\nmatch.exe = \"python*\"\n" +
			"[[rule]]\nmatch.user = \"1000\"\n[[rule]]\nmatch.exe = \"python3\"\n[[rule]]\nmemory.max = \"1G\"", ""},
		"users and groups": {"[[rule]]\nmatch.user = \"anne\"\n[[rule]]\nmatch.group = \"bob\"\nmatch.user = \"carl\"",
			`f.toml:3: match.user: there is no user "anne" on this machine
f.toml:5: match.group: there is no group "bob" on this machine
f.toml:6: match.user: there is no user "carl" on this machine`},
		"devices": {"[[device]]\nmatch.index = 3\nreserve = \"1G\"\n[[device]]\nmatch.uuid = \"GPU-c\"\n[[device]]\nmatch.vendor = \"amd\"",
			`f.toml:2: there is no such device on this machine: ` + "`gpuarb devices`" + ` lists them
f.toml:5: there is no such device on this machine: ` + "`gpuarb devices`" + ` lists them
f.toml:7: there is no such device on this machine: ` + "`gpuarb devices`" + ` lists them`},
		"a block for all before others": {"[[device]]\nreserve = \"1G\"\n[[device]]\nmatch.index = 0",
			"f.toml:4: this block is never used: for each of its devices one that comes first counts"},
		"reserves": {"[[device]]\nmatch.index = 1\nreserve = \"4G\"\n[[device]]\nmatch.index = 0\nreserve = \"100%\"\n[defaults]\nmemory.min = \"9G\"",
			`f.toml:4: reserve of 4 GiB is all that GPU 1 has (4 GiB): nothing is left for anybody
f.toml:7: reserve of 8 GiB is all that GPU 0 has (8 GiB): nothing is left for anybody
f.toml:9: memory.min of 9 GiB is more than a device has (8 GiB): it can never be reserved`},
		"a list of devices": {"[defaults]\ndevices = [0, 2]\n[[rule]]\ndevices = [\"GPU-c\", \"GPU-a\", 1]",
			"f.toml:3: devices: this machine has no GPU 2: `gpuarb devices` lists those that it has\n" +
				"f.toml:5: devices: this machine has no GPU GPU-c: `gpuarb devices` lists those that it has"},
		"the processor": {"[[device]]\nmatch.vendor = \"cpu\"\nmemory = 8\n[defaults]\nmemory.min = \"9G\"",
			`f.toml:4: memory is 8 bytes; did you mean "8GiB"?
f.toml:6: memory.min of 9 GiB is more than a device has (8 GiB): it can never be reserved`},
		"jobs that are never asked": {"[[rule]]\nevict.how = \"hook\"\nevict.suspend = [\"/usr/bin/curl\"]\nevict.resume = [\"/usr/bin/crul\"]\n[[rule]]\nmatch.user = \"ann\"\nevict.how = \"never\"",
			`f.toml:3: evict.how: jobs make room only after gpuarb suspend, because evict.after in [defaults] is "max"; a time there, such as "5s", has waiting requests ask them
f.toml:5: evict.resume: this machine has no program /usr/bin/crul
f.toml:6: this rule is never used: rule 1 (f.toml:2), which comes first, matches everybody`},
		"nobody to ask":       {"[defaults]\nevict.after = \"5s\"", `f.toml:3: evict.after: no job can be asked to make room, because no section has evict.how = "hook" or "unit"`},
		"jobs that are asked": {"[defaults]\nevict.after = \"5s\"\n[[rule]]\nmatch.unit = \"a.service\"\nevict.how = \"unit\"", ""},
		"a catch-all first": {"[[rule]]\nmatch.user = \"*\"\n[[rule]]\nmatch.user = \"ann\"\n[[rule]]\nname = \"last\"",
			`f.toml:4: this rule is never used: rule 1 (f.toml:2), which comes first, matches user *
f.toml:6: this rule is never used: rule 1 (f.toml:2), which comes first, matches user *`},
		"a wider one first": {"[[rule]]\nname = \"all\"\nmatch.user = \"ann\"\n[[rule]]\nmatch.user = \"ann\"\nmatch.exe = \"x\"\n[[rule]]\nmatch.exe = \"x\"",
			"f.toml:5: this rule is never used: rule all (f.toml:2), which comes first, matches user ann"},
		"forgotten units": {"[defaults]\nmemory.max = 8\nstreams.max = 8\nhost.max = \"512\"\n[[rule]]\nmemory.max = 4294967296\nmemory.min = 0x10",
			`f.toml:3: memory.max is 8 bytes; did you mean "8GiB"?
f.toml:5: host.max is 512 bytes; did you mean "512MiB"?
f.toml:8: memory.min is 16 bytes; did you mean "16GiB"?`},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "f.toml")
			if err := os.WriteFile(path, []byte("schema_version = 1\n"+c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, warnings, err := Check(path, machine)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, strings.ReplaceAll(warnings.Error(), dir+"/", "")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if _, warnings, _ := Check(path, Machine{}); len(warnings) > 0 && strings.Contains(warnings.Error(), "machine") {
				t.Errorf("on a machine of which nothing is known: %v", warnings)
			}
		})
	}
}
