package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Each mistake in a configuration file gets one line with the file, the line, the key, and what is
// allowed. http_test.go has the mistakes in [http], and config_test.go those of files that cannot
// be read.

// TestMistakes checks that each file below has exactly the mistakes that are listed.
func TestMistakes(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"types": {
			"[defaults]\nmemory.max = true\nmemory.min = 1.5\nscope = 3\nstreams.max = \"8\"\non_loss = \"ajar\"\n[[device]]\nmatch.index = -1\nmatch.vendor = \"voodoo\"\nreserve = [1]",
			`f.toml:3: memory.max: must be a size ("4GiB", "25%", "max" or a number of bytes), not true
f.toml:4: memory.min: must be a size ("4GiB", "25%", "max" or a number of bytes), not 1.5
f.toml:5: scope: must be "job" or "process" or "user" or "cgroup" or "rule", not 3
f.toml:6: streams.max: must be an integer, not "8"
f.toml:7: on_loss: must be "open" or "closed", not "ajar"
f.toml:9: match.index: must be from 0 to 65536, not -1
f.toml:10: match.vendor: must be "nvidia" or "amd" or "intel" or "cpu", not "voodoo"
f.toml:11: reserve: must be a size ("4GiB", "25%", "max" or a number of bytes), not […]`,
		},
		"values": {
			"[defaults]\nmemory.max = -1\nmemory.min = \"max\"\nstreams.max = 0\n[[rule]]\nmatch.user = \"\"\nmatch.exe = \"[a\"\nmemory.max = \"4 parsecs\"",
			`f.toml:3: memory.max: "-1" is no size: it is negative
f.toml:4: memory.min: cannot be "max": nothing would be left; write a size or "100%"
f.toml:5: streams.max: must be from 1 to 1048576, not 0
f.toml:7: match.user: must be a string with something in it, not ""
f.toml:8: match.exe: "[a" is no pattern: a [ without its ], or a \ at the end
f.toml:9: memory.max: "4 parsecs" is no size: its unit "parsecs" is unknown; K, M, G, T (powers of 1024) and % are known`,
		},
		"addresses": {
			"[[device]]\nmatch.pci = \"1:0\"\n[[device]]\nmatch.pci = 3\n[[device]]\nmatch.uuid = \" \"",
			`f.toml:3: match.pci: must be a PCI address ("0000:01:00.0"), not "1:0"
f.toml:5: match.pci: must be a PCI address ("0000:01:00.0"), not 3
f.toml:7: match.uuid: must be a string with something in it, not " "`,
		},
		"the memory of a device": {
			"[[device]]\nmatch.index = 0\nmemory = \"8GiB\"\n[[device]]\nmatch.vendor = \"cpu\"\nmemory = 0\n[[device]]\nmemory = \"50%\"",
			`f.toml:7: memory: must be above 0
f.toml:9: memory: cannot be a share: write bytes`,
		},
		"drivers on a GPU": {
			"[[device]]\nmatch.index = 0\nalso = [\"pocl\", \"llvmpipe\"]\n[[device]]\nmatch.index = 1\nalso = [\"pocl\"]\n[[device]]\nmatch.vendor = \"cpu\"\nalso = [\"rocm\"]\n" +
				"[[device]]\nalso = \"pocl\"\n[[device]]\nalso = []\n[[device]]\nalso = [1]\n[[device]]\nalso = [\"llvmpipe\", \"llvmpipe\"]\n[[device]]\nmatch.vendor = \"cpu\"\nalso = [\"llvmpipe\"]",
			`f.toml:7: also: "pocl" is counted by the [[device]] at f.toml:2 already
f.toml:10: also: "rocm" is no driver that computes on the processor; known are "pocl", "llvmpipe"
f.toml:12: also: must be a list of drivers: "pocl", "llvmpipe", not "pocl"
f.toml:14: also: must be a list of drivers: "pocl", "llvmpipe", not […]
f.toml:16: also: 1 is no driver that computes on the processor; known are "pocl", "llvmpipe"
f.toml:18: also: "llvmpipe" is there twice
f.toml:18: also: "llvmpipe" is counted by the [[device]] at f.toml:2 already
f.toml:21: also: what computes on the processor is counted there unless a GPU's [[device]] says otherwise; leave it out, or write it there
f.toml:21: also: "llvmpipe" is counted by the [[device]] at f.toml:2 already`,
		},
		"unknown keys": {
			"color = 1\n[defaults]\nmatch.user = \"x\"\nmemory.mox = 1\n\"memory.max\" = 1\n[defaults.memroy]\n[[device]]\nmemory.max = 1\n[colors]\nred = 1",
			`f.toml:2: unknown key "color" in the top of the file; known are history, history_age, history_size, schema_version
f.toml:4: match.user: cannot be set in [defaults]; it belongs in [[rule]]
f.toml:5: unknown key "memory.mox" in [defaults]; did you mean memory.max?
f.toml:6: unknown key "\"memory.max\"" in [defaults]; did you mean memory.max?
f.toml:7: unknown key "memroy" in [defaults]; known are DEFAULTS
f.toml:9: memory.max: cannot be set in [[device]]; it belongs in [defaults] or [[rule]]
f.toml:10: unknown section [colors]; known are [defaults], [[rule]], [[device]], [http], [privacy], [metrics] and [dcgm]`,
		},
		"wrong sections": {
			"rule = 1\ndevice = [1]\n[[defaults]]\nscope = \"job\"\n[[colors]]",
			`f.toml:2: [rule]: there may be several; write [[rule]]
f.toml:3: device must be a list of tables; write [[device]]
f.toml:4: [[defaults]]: there is only one; write [defaults]
f.toml:6: unknown section [[colors]]; known are [defaults], [[rule]], [[device]], [http], [privacy], [metrics] and [dcgm]`,
		},
		"a rule that is one table": {
			"[rule]\nmemory.max = 1",
			`f.toml:2: [rule]: there may be several; write [[rule]]`,
		},
		"defaults that are no table": {"defaults = 3", `f.toml:2: defaults must be a table; write [defaults]`},
		"a table for a value": {
			"[defaults.memory.max]\nx = 1",
			`f.toml:2: memory.max: must be a size ("4GiB", "25%", "max" or a number of bytes), not {…}
f.toml:3: unknown key "memory.max.x" in [defaults]; did you mean memory.max?`,
		},
		"of another section": {
			"[[rule]]\non_loss = \"closed\"\nslots.max = 1\ndeadlock_grace = \"1s\"\ncharge_overhead = true\ncontext_reserve = 1\n[[device]]\npriority = 1",
			`f.toml:3: on_loss: cannot be set in [[rule]]; it belongs in [defaults]
f.toml:4: slots.max: cannot be set in [[rule]]; it belongs in [defaults] or [[device]]
f.toml:5: deadlock_grace: cannot be set in [[rule]]; it belongs in [defaults]
f.toml:6: charge_overhead: cannot be set in [[rule]]; it belongs in [defaults]
f.toml:7: context_reserve: cannot be set in [[rule]]; it belongs in [defaults] or [[device]]
f.toml:9: priority: cannot be set in [[device]]; it belongs in [defaults] or [[rule]]`,
		},
		"waiting": {
			"[defaults]\non_full = \"panic\"\nwait_timeout = 10\nage_after = \"soon\"\npriority = \"high\"\nwait_after = 17\ndeadlock_grace = \"0s\"\n[[rule]]\nwait_timeout = \"-1s\"\npriority = 1_000_001",
			`f.toml:3: on_full: must be "deny" or "wait", not "panic"
f.toml:4: wait_timeout: must be a duration ("10m", "2s") or "max", not 10
f.toml:5: age_after: must be a duration ("10m", "2s") or "max", not "soon"
f.toml:6: priority: must be an integer, not "high"
f.toml:7: wait_after: must be from 0 to 16, not 17
f.toml:8: deadlock_grace: must be above 0
f.toml:10: wait_timeout: must be a duration ("10m", "2s") or "max", not "-1s"
f.toml:11: priority: must be from -1000000 to 1000000, not 1_000_001`,
		},
		"devices": {
			"[defaults]\ndevices = []\n[[rule]]\ndevices = 0\n[[rule]]\ndevices = [64]\n[[rule]]\ndevices = [\"0\"]\n[[rule]]\ndevices = [1, 0, 1]\n[[rule]]\ndevices = [\"CPU-1\"]\n[[rule]]\ndevices = [\"GPU-1,GPU-2\"]",
			`f.toml:3: devices: must name a device, as [0]; a rule without the key allows every device
f.toml:5: devices: must be a list of devices ([0, "GPU-…"]), not 0
f.toml:7: devices: must be from 0 to 63, not 64
f.toml:9: devices: "0" is neither the index nor the UUID of a GPU; ` + "`gpuarb devices`" + ` shows both
f.toml:11: devices: device 1 is there twice
f.toml:13: devices: "CPU-1" is neither the index nor the UUID of a GPU; ` + "`gpuarb devices`" + ` shows both
f.toml:15: devices: "GPU-1,GPU-2" is neither the index nor the UUID of a GPU; ` + "`gpuarb devices`" + ` shows both`,
		},
		"warnings": {
			"[defaults]\nidle.warn = \"500ms\"\nage.warn = \"31d\"\n[[rule]]\nidle.warn = 7\nage.warn = \"x1d\"\n[[rule]]\nidle.warn = \"1d-2h\"\nage.warn = \"30d1s\"\n[[rule]]\nidle.warn = \"0\"\nage.warn = \"-1h\"",
			`f.toml:3: idle.warn: must be from 1s to 30d, or "max" for never, not "500ms"
f.toml:4: age.warn: must be from 1s to 30d, or "max" for never, not "31d"
f.toml:6: idle.warn: must be a duration ("10m", "2s") or "max", not 7
f.toml:7: age.warn: must be a duration ("10m", "2s") or "max", not "x1d"
f.toml:9: idle.warn: must be a duration ("10m", "2s") or "max", not "1d-2h"
f.toml:10: age.warn: must be from 1s to 30d, or "max" for never, not "30d1s"
f.toml:12: idle.warn: must be from 1s to 30d, or "max" for never, not "0"
f.toml:13: age.warn: must be a duration ("10m", "2s") or "max", not "-1h"`,
		},
		"idle jobs that make room": {
			"[defaults]\nevict.how = \"unit\"\nevict.after = \"0\"\n[[rule]]\nevict.how = \"signal\"\nevict.return = \"later\"\n[[rule]]\nmatch.unit = \"vllm*\"\nevict.how = \"unit\"\nevict.resume = [\"/bin/true\"]\n" +
				"[[rule]]\nmatch.user = \"a\"\nevict.how = \"unit\"\n[[rule]]\nevict.how = \"hook\"\nevict.return = \"room\"\n[[rule]]\nevict.how = \"never\"\nevict.timeout = \"10s\"\n" +
				"[[rule]]\nevict.how = \"hook\"\nevict.suspend = \"/bin/true\"\nevict.resume = [\"curl\", \"x\"]\nevict.idle_after = \"0\"\nevict.timeout = \"2h\"\n[[rule]]\nevict.suspend = []\nevict.min_resident = \"31d\"",
			`f.toml:3: evict.how: "unit" cannot be set in [defaults], because it stops services: set it in a [[rule]] with match.unit
f.toml:4: evict.after: must be above 0
f.toml:6: evict.how: must be "never" or "hook" or "unit", not "signal"
f.toml:7: evict.return: must be "never" or "room" or "use", not "later"
f.toml:10: evict.how: "unit" stops services only: match.unit must end in .service, which "vllm*" does not
f.toml:11: evict.resume: evict.how = "unit" runs no command: remove this key, or set evict.how = "hook"
f.toml:14: evict.how: "unit" needs match.unit, the service to stop, such as match.unit = "llama.service"
f.toml:16: evict.how: "hook" needs evict.suspend, the command that asks the program for its memory, such as ["/usr/bin/curl", "-fsS", "-X", "POST", "http://localhost:8000/sleep?level=1"]
f.toml:17: evict.return: "room" needs evict.resume, the command that lets the program take its memory again; a program that does so when it is used has evict.return = "use"
f.toml:23: evict.suspend: must be a list of strings, such as ["/usr/bin/curl", "-fsS", "-X", "POST", "http://localhost:8000/sleep?level=1"], not "/bin/true"
f.toml:24: evict.resume: must begin with the absolute path of a program, not "curl"
f.toml:25: evict.idle_after: must be from 100ms to 30d, not "0"
f.toml:26: evict.timeout: must be from 100ms to 1h, not "2h"
f.toml:28: evict.suspend: must be a list of strings, such as ["/usr/bin/curl", "-fsS", "-X", "POST", "http://localhost:8000/sleep?level=1"], not […]
f.toml:29: evict.min_resident: must be from 100ms to 30d, not "31d"`,
		},
		"making room without a way": {
			"[defaults]\nevict.idle_after = \"1h\"\n[[rule]]\nevict.return = \"use\"\nevict.timeout = \"1s\"",
			`f.toml:5: evict.return: has no effect without evict.how: add evict.how = "hook" or "unit", or remove this key`,
		},
		"slots and reserves": {
			"[defaults]\nslots.max = 0\nslots.scope = \"user\"\ncharge_overhead = 1\nstream_reserve = \"x\"\ncontext_reserve = \"max\"\nhost.max = \"50%\"\n[[device]]\nslots.max = \"4\"\n[[rule]]\nstream_reserve = \"max\"",
			`f.toml:3: slots.max: must be "max" or an integer from 1 to 1048576, not 0
f.toml:4: slots.scope: must be "job" or "process" or "thread", not "user"
f.toml:5: charge_overhead: must be true or false, not 1
f.toml:6: stream_reserve: "x" is no size: it does not start with a number; write bytes, "4GiB", "25%" or "max"
f.toml:7: context_reserve: cannot be "max": nothing would be left; write a size or "100%"
f.toml:8: host.max: cannot be a share: write bytes
f.toml:10: slots.max: must be "max" or an integer from 1 to 1048576, not "4"
f.toml:12: stream_reserve: cannot be "max": nothing would be left; write a size or "100%"`,
		},
		"min above max": {
			"[defaults]\nmemory.min = \"2G\"\nmemory.max = \"1G\"\n[[rule]]\nmemory.max = \"50%\"\nmemory.min = \"60%\"\n[[rule]]\nmemory.max = \"10%\"\n[[rule]]\nmemory.max = \"512M\"",
			`f.toml:3: memory.min (2GiB) is more than memory.max (1GiB)
f.toml:7: memory.min (60%) is more than memory.max (50%)
f.toml:11: memory.min (2GiB) is more than memory.max (512MiB)`,
		},
		"names of rules": {
			"[[rule]]\nname = \"a b\"\n[[rule]]\nname = 3\n[[rule]]\nname = \"a\"\n[[rule]]\nname = \"a\"\n[defaults]\nname = \"a\"",
			`f.toml:3: name: must be a word of at most 64 letters, digits, _, . and -, not "a b"
f.toml:5: name: must be a word of at most 64 letters, digits, _, . and -, not 3
f.toml:9: name: "a" is the name of the rule at f.toml:6 already
f.toml:11: name: cannot be set in [defaults]; it belongs in [[rule]]`,
		},
		"syntax": {"[defaults\n", `f.toml:2: no valid TOML: SYNTAX`},
		"a key twice": {
			"[defaults]\nscope = \"job\"\nscope = \"job\"",
			`f.toml:4: no valid TOML: SYNTAX`,
		},
	} {
		t.Run(name, func(t *testing.T) { checkMistakes(t, "schema_version = 1\n"+c.text, c.want) })
	}
}

func checkMistakes(t *testing.T, text, want string) {
	t.Helper()
	_, err := loadText("f.toml", text)
	if err == nil {
		t.Fatal("no mistakes")
	}
	want = strings.NewReplacer("DEFAULTS", strings.Join(tableOf(sectionDefaults).keyNames(), ", ")).Replace(want)
	if before, ok := strings.CutSuffix(want, "SYNTAX"); ok { // the rest is the text of the TOML library
		if !strings.HasPrefix(err.Error(), before) {
			t.Errorf("got  %s\nwant %s…", err, before)
		}
		return
	}
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(err.Error(), "\n")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSchemaVersion(t *testing.T) {
	for text, want := range map[string]string{
		"":                         "f.toml:1: schema_version is missing; write schema_version = 1 at the top",
		"[defaults]":               "f.toml:1: schema_version is missing; write schema_version = 1 at the top",
		"schema_version = 2":       "f.toml:1: schema_version: is 2; this gpuarb reads version 1",
		"\nschema_version = \"1\"": "f.toml:2: schema_version: must be an integer, not \"1\"",
	} {
		_, err := loadText("f.toml", text)
		if err == nil || err.Error() != want {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
}
