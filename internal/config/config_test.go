package config

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/tests/bounded"
	"golang.org/x/sys/unix"
)

// A configuration has the values that its files set, in any spelling that TOML allows, and prints
// as a file that reads back to equal values. mistake_test.go tests refused files, warnings_test.go
// accepted files that are probably wrong.

// unexported leaves out the private fields of a policy, which hold live changes and not the
// configuration.
var unexported = cmpopts.IgnoreUnexported(rules.Policy{})

// everything sets every key.
const everything = `schema_version = 1

[defaults]
memory.max = "75%"
memory.min = "1GiB"
scope = "process"
streams.max = 64
on_full = "wait"
wait_timeout = "max"
wait_after = 1
age_after = "90s"
idle.warn = "2h"
age.warn = "1d12h"
deadlock_grace = "500ms"
priority = -3
on_loss = "closed"
slots.max = 4
slots.scope = "process"
stream_reserve = "256MiB"
charge_overhead = true
context_reserve = "1%"
host.max = "1GiB"
no_exports = true
devices = [0, "gpu-1B4E28BA-2fa1-11d2-883f-0016d3cca427"]
evict.after = "5s"
evict.how = "hook"
evict.suspend = ["/usr/bin/curl", "-fsS", "http://localhost:8000/sleep"]
evict.resume = ["/bin/sh", "-c", "echo \"b\""]
evict.idle_after = "90s"
evict.min_resident = "2m"
evict.timeout = "10s"
evict.return = "room"

[[device]]
match.index = 0
reserve = "512MiB"
slots.max = "max"
slots.scope = "thread"
context_reserve = "300MiB"

[[device]]
match = { vendor = "nvidia", uuid = "GPU-1", pci = "0000:01:00.0" }
also = ["llvmpipe", # lavapipe
  "pocl"]

[[device]]
match.vendor = "cpu"
match.uuid = "cpu-67707561-7262-3A70-726f-636573736f72"
memory = "8GiB"

[[rule]]
name = "students"
match.user = "student"
scope = "rule"
memory.max = 8_589_934_592

[[rule]]
memory = { max = "max", min = 0 }
streams.max = 0x10
on_full = "deny"
wait_timeout = "30s"
wait_after = 0
priority = 7
slots.scope = "job"
stream_reserve = "0"
host.max = "max"
no_exports = false
devices = [63]
evict.how = "unit"
evict.idle_after = "1s"
evict.min_resident = "1s"
evict.timeout = "1h"
evict.return = "never"
[rule.match]
group = "lab"
exe = "/usr/bin/python*"
command = "*train*"
cgroup = "/user.slice/*"
unit = "a.service"
container = "c1"
`

func ptr[T any](v T) *T { return &v }

// loadText parses text as the content of one file with that name.
func loadText(name, text string) (*Config, error) {
	return Parse(name, []byte(text))
}

func parse(t *testing.T, text string) *Config {
	t.Helper()
	config, err := loadText("f.toml", text)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func checkRoundTrip(t *testing.T, config *Config) {
	t.Helper()
	again, err := loadText(config.Files[0], config.String())
	if err != nil {
		t.Fatalf("%v\nin:\n%s", err, config)
	}
	for i := range config.Policy.Rules { // the names of rules contain their lines
		again.Policy.Rules[i].Name = config.Policy.Rules[i].Name
	}
	if diff := cmp.Diff(config, again, unexported); diff != "" {
		t.Errorf("the printed configuration reads back otherwise (-was +now):\n%s", diff)
	}
}

func TestParseEverything(t *testing.T) {
	config := parse(t, everything)
	want := Defaults()
	want.Files = []string{"f.toml"}
	want.OnLoss = LossClosed
	want.Policy.Defaults = rules.Settings{
		Max:        accounting.Size{PerMille: 750},
		Min:        accounting.Size{Bytes: 1 << 30},
		Scope:      rules.ScopeProcess,
		StreamsMax: 64,

		OnFull:        rules.OnFullWait,
		WaitTimeout:   rules.NoTimeout,
		WaitAfter:     ptr(1),
		Priority:      -3,
		SlotScope:     rules.ScopeProcess,
		StreamReserve: 256 << 20,
		HostMax:       ptr(accounting.Bytes(1 << 30)),
		NoExports:     true,
		Devices:       "0,GPU-1b4e28ba-2fa1-11d2-883f-0016d3cca427",
		Evict: rules.Evict{
			How: rules.EvictByHook, IdleAfter: 90 * time.Second, MinResident: 2 * time.Minute, Timeout: 10 * time.Second, Return: rules.ReturnOnRoom,
			Suspend: rules.MakeCommand([]string{"/usr/bin/curl", "-fsS", "http://localhost:8000/sleep"}),
			Resume:  rules.MakeCommand([]string{"/bin/sh", "-c", `echo "b"`}),
		},
	}
	want.Policy.EvictAfter = 5 * time.Second
	want.Policy.Defaults.AgeAfter = 90 * time.Second
	want.Policy.Defaults.IdleWarn, want.Policy.Defaults.AgeWarn = 2*time.Hour, 36*time.Hour
	want.Policy.DeadlockGrace = 500 * time.Millisecond
	want.Policy.ChargeOverhead = true
	want.Policy.ContextReserve, want.Policy.ContextGuess = accounting.Size{PerMille: 10}, accounting.Size{}
	want.Policy.Devices = []rules.DeviceRule{
		{Match: rules.DeviceMatch{Index: ptr(0)}, Reserve: accounting.Size{Bytes: 512 << 20},
			SlotScope: rules.ScopeThread, ContextReserve: &accounting.Size{Bytes: 300 << 20}},
		{Match: rules.DeviceMatch{Vendor: "nvidia", UUID: "GPU-1", PCI: "0000:01:00.0"}, SlotsMax: 4, Also: []string{"llvmpipe", "pocl"}},
		{Match: rules.DeviceMatch{Vendor: "cpu", UUID: "CPU-67707561-7262-3a70-726f-636573736f72"}, SlotsMax: 4, Memory: 8 << 30},
		{SlotsMax: 4}, // the defaults, for all other devices
	}
	want.Policy.Rules = []rules.Rule{
		{
			Name:  "rule students (f.toml:51)",
			Key:   "students",
			Match: rules.Match{User: "student"},
			Scope: ptr(rules.ScopeRule),
			Max:   &accounting.Size{Bytes: accounting.Bytes(8 << 30)},
		},
		{
			Name: "rule 2 (f.toml:57)",
			Match: rules.Match{
				Group: "lab", Exe: "/usr/bin/python*", Command: "*train*",
				Cgroup: "/user.slice/*", Unit: "a.service", Container: "c1",
			},
			Min:        &accounting.Size{},
			Max:        &accounting.Size{Max: true},
			StreamsMax: ptr(16),

			OnFull:        ptr(rules.OnFullDeny),
			WaitTimeout:   ptr(30 * time.Second),
			WaitAfter:     ptr(0),
			Priority:      ptr(7),
			SlotScope:     ptr(rules.ScopeJob),
			StreamReserve: ptr(accounting.Bytes(0)),
			HostMax:       ptr(accounting.Max),
			NoExports:     ptr(false),
			Devices:       ptr(rules.DeviceList("63")),
			Evict: rules.EvictRule{How: ptr(rules.EvictByUnit), IdleAfter: ptr(time.Second), MinResident: ptr(time.Second),
				Timeout: ptr(time.Hour), Return: ptr(rules.ReturnNever)},
		},
	}
	if diff := cmp.Diff(want, config, unexported); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	checkRoundTrip(t, config)
}

func TestSpellings(t *testing.T) {
	want := parse(t, "schema_version = 1\n[defaults]\nmemory.max = \"4G\"\n[[rule]]\nmatch.user = \"a\"\nmemory.max = \"1G\"")
	for _, text := range []string{
		"schema_version = 1\ndefaults.memory.max = \"4G\"\nrule = [{match.user = \"a\", memory = {max = \"1G\"}}]",
		"schema_version = 1\ndefaults = {memory.max = \"4G\"}\n[[rule]]\n[rule.memory]\nmax = \"1G\"\n[rule.match]\nuser = 'a'",
		"schema_version = 1\n[defaults.memory]\nmax = 4294967296\n[[rule]]\nmemory.max=\"1024M\"\nmatch={user=\"a\"}",
	} {
		got := parse(t, text)
		got.Policy.Rules[0].Name = want.Policy.Rules[0].Name
		if diff := cmp.Diff(want, got, unexported); diff != "" {
			t.Errorf("%s\n(-want +got):\n%s", text, diff)
		}
	}
}

// TestDeviceAddresses checks that addresses get the spelling of package inventory, with which the
// arbiter compares them.
func TestDeviceAddresses(t *testing.T) {
	for given, want := range map[string]string{
		"0000:01:00.0": "0000:01:00.0", "00000000:01:00.0": "0000:01:00.0", "01:00.0": "0000:01:00.0",
		"0001:AF:00.0": "0001:af:00.0", "00010000:af:00.0": "10000:af:00.0",
	} {
		config := parse(t, "schema_version = 1\n[[device]]\nmatch.pci = \""+given+"\"\nmatch.uuid = \"gpu-AB01\"")
		match := config.Policy.Devices[0].Match
		if match.PCI != want || match.UUID != "GPU-ab01" {
			t.Errorf("%s is taken for %q, gpu-AB01 for %q", given, match.PCI, match.UUID)
		}
	}
}

func TestDefaultsRoundTrip(t *testing.T) {
	config := Defaults()
	again := parse(t, config.String())
	again.Files = nil
	if diff := cmp.Diff(config, again, unexported); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func write(t *testing.T, folder string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLoadMerges(t *testing.T) {
	folder := t.TempDir()
	write(t, folder, map[string]string{
		"gpuarb.toml":        "schema_version = 1\n[defaults]\nmemory.max = \"1G\"\nstreams.max = 5\n[[rule]]\nmatch.user=\"main\"",
		"conf.d/20-b.toml":   "schema_version = 1\n[[rule]]\nmatch.user=\"b\"\n[defaults]\nmemory.max = \"2G\"",
		"conf.d/10-a.toml":   "[[rule]]\nmatch.user=\"a\"\n[defaults]\nmemory.max = \"3G\"",
		"conf.d/readme.txt":  "not read",
		"conf.d/.x.toml":     "not read",
		"conf.d/x.toml.orig": "not read",
	})
	config, err := Load(filepath.Join(folder, "gpuarb.toml"))
	if err != nil {
		t.Fatal(err)
	}
	var users, files []string
	for _, rule := range config.Policy.Rules {
		users = append(users, rule.Match.User)
	}
	for _, file := range config.Files {
		files = append(files, filepath.Base(file))
	}
	if diff := cmp.Diff([]string{"main", "a", "b"}, users); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"gpuarb.toml", "10-a.toml", "20-b.toml"}, files); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if got := config.Policy.Defaults; got.Max.Bytes != 2<<30 || got.StreamsMax != 5 {
		t.Errorf("defaults = %+v; the last file should win key by key", got)
	}
}

func TestLoadMistakes(t *testing.T) {
	folder := t.TempDir()
	main := filepath.Join(folder, "gpuarb.toml")
	if _, err := Load(main); err == nil || err.Error() != main+": cannot be read: no such file or directory" {
		t.Errorf("missing file: %v", err)
	}
	write(t, folder, map[string]string{
		"gpuarb.toml":   "schema_version = 1\n\n[defaults]\nmemory.max = \"1G!\"\n[[rule]]\nmemory.min = \"3G\"",
		"conf.d/a.toml": "schema_version = 2\n[defaults]\nmemory.max = \"2G\"",
		"conf.d/b.toml": "x",
	})
	if err := os.Mkdir(filepath.Join(folder, "conf.d/c.toml"), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := Load(main)
	want := strings.NewReplacer("DIR", folder).Replace(`DIR/gpuarb.toml:4: memory.max: "1G!" is no size: its unit "G!" is unknown; K, M, G, T (powers of 1024) and % are known
DIR/gpuarb.toml:6: memory.min (3GiB) is more than memory.max (2GiB)
DIR/conf.d/a.toml:1: schema_version: is 2; this gpuarb reads version 1
DIR/conf.d/b.toml:1: no valid TOML: expected '=' after key
DIR/conf.d/c.toml: cannot be read: is a directory`)
	if err == nil {
		t.Fatal("no mistakes")
	}
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(err.Error(), "\n")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestPipe checks that a pipe without a writer does not block the reading of the configuration.
func TestPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.toml")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	read := make(chan error, 1)
	go func() { _, err := Load(path); read <- err }()
	if err := bounded.Receive(t, "it is read", read); err == nil || !strings.Contains(err.Error(), "schema_version is missing") {
		t.Errorf("%v", err)
	}
}

func TestTooLong(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.toml")
	if err := os.WriteFile(path, bytes.Repeat([]byte("#\n"), maxFile), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Load(path)
	if want := path + ": cannot be read: it is longer than 1048576 bytes"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
