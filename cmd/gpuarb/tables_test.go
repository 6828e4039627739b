package main

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/internal/config"
	"github.com/gpuarb/gpuarb/internal/events"
	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/internal/report"
	"github.com/gpuarb/gpuarb/internal/version"
	"github.com/gpuarb/gpuarb/ipc"
	"golang.org/x/sys/unix"
)

// This file checks the commands that show or change the daemon's state: ps, queue, events, devices,
// limit, plan, config check, version and metrics, with the words that they complete. Package report
// has the tests of the tables' form, json_test.go those of --json.

func someLeases(d *fakeDaemon) {
	d.state.Leases = []figures.LeaseState{
		{PID: 42, User: "ada", Device: 1, State: figures.StateRunning, Used: 1 << 20, Budget: accounting.Max, Command: "train\nx"},
	}
}

func TestPs(t *testing.T) {
	daemon := startDaemon(t, someLeases)
	var table strings.Builder
	if err := (report.Style{Human: true}).Leases(&table, daemon.state); err != nil {
		t.Fatal(err)
	}
	got := finish(t, gpuarb(t, daemon.environment(t), "ps"))
	if got.code != 0 || got.stdout != table.String() {
		t.Errorf("code %d\n%v\nwant:\n%s", got.code, got, table.String())
	}
	var leases []report.Lease
	got = finish(t, gpuarb(t, daemon.environment(t), "ps", "--json"))
	if err := json.Unmarshal([]byte(got.stdout), &leases); err != nil || len(leases) != 1 || leases[0].PID != 42 || leases[0].Command != "train\nx" {
		t.Errorf("%v: %+v\n%v", err, leases, got)
	}
}

func TestQueue(t *testing.T) {
	daemon := startDaemon(t, func(d *fakeDaemon) {
		d.state.Queue = []figures.TicketState{{Pos: 1, Ticket: 12, PID: 42, User: "ada", Device: -1, Wants: "device",
			WaitedMs: 2500, Reason: "slots", Command: "train\nx"}}
	})
	want := "POS PID USER GPU  WANTS WAITED REASON BEHIND TICKET COMMAND\n" +
		"  1  42 ada  any device     2s slots       -     12 train\\nx\n"
	got := finish(t, gpuarb(t, daemon.environment(t), "queue"))
	if got.code != 0 || got.stdout != want {
		t.Errorf("code %d\n%v\nwant:\n%s", got.code, got, want)
	}
	var queue []report.Ticket
	got = finish(t, gpuarb(t, daemon.environment(t), "queue", "--json"))
	if err := json.Unmarshal([]byte(got.stdout), &queue); err != nil || len(queue) != 1 || queue[0].Device != nil || queue[0].WantsBytes != nil || queue[0].Ticket != 12 {
		t.Errorf("%v: %+v\n%v", err, queue, got)
	}
	got = finish(t, gpuarb(t, daemon.environment(t), "__complete", "queue", "cancel", ""))
	if !strings.HasPrefix(got.stdout, "12\tada: train\\nx\n") {
		t.Errorf("completion offers\n%v", got)
	}
}

// TestUnreadableEvent checks that an unreadable event also ends --follow, because a second attempt
// would not help.
func TestUnreadableEvent(t *testing.T) {
	daemon := startDaemon(t, func(d *fakeDaemon) { d.events = []byte("no event\n") })
	got := finish(t, gpuarb(t, daemon.environment(t), "events", "--follow"))
	wantCode(t, got, 1)
	wantStderr(t, got, "the daemon sent an event that cannot be read: invalid character 'o' in literal null (expecting 'u'); are daemon and gpuarb of one version?")
	daemon = startDaemon(t, func(d *fakeDaemon) {
		e := events.Event{Kind: events.Configured, Text: "the one before it"}
		d.events = append(e.Line(), "no event\n"...)
	})
	if got := finish(t, gpuarb(t, daemon.environment(t), "events")); got.code != 1 || !strings.Contains(got.stdout, "the one before it") {
		t.Errorf("what can be read before it is printed: code %d\n%v", got.code, got)
	}
	daemon = startDaemon(t, func(d *fakeDaemon) { d.events = []byte("no event\n") })
	got = finish(t, gpuarb(t, daemon.environment(t), "events", "--json"))
	if got.code != 0 || got.stdout != "no event\n" { // --json passes lines on unread, because its reader may understand them
		t.Errorf("code %d\n%v", got.code, got)
	}
}

// TestEventsUnread checks that --follow ends when its reader disconnects, without a further event.
func TestEventsUnread(t *testing.T) {
	daemon := startDaemon(t, nil)
	for name, open := range map[string]func() (ours, theirs *os.File, err error){
		"pipe": os.Pipe,
		"socket": func() (ours, theirs *os.File, err error) {
			fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			return os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs"), err
		},
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs, err := open()
			if err != nil {
				t.Fatal(err)
			}
			command := gpuarb(t, daemon.environment(t), "events", "--follow")
			command.Stdout = theirs
			if err := command.Start(); err != nil {
				t.Fatal(err)
			}
			theirs.Close()
			if line, err := bufio.NewReader(ours).ReadString('\n'); err != nil || !strings.Contains(line, "in force") {
				t.Errorf("the first line: %q, %v", line, err)
			}
			ours.Close()
			_ = command.Wait()
			if end := command.ProcessState.Sys().(syscall.WaitStatus); !end.Signaled() || end.Signal() != unix.SIGPIPE {
				t.Errorf("it ended with %v, want SIGPIPE", command.ProcessState)
			}
		})
	}
}

// TestCompleteCgroup checks that completion offers the cgroups of clients, except paths with
// characters that a shell would interpret.
func TestCompleteCgroup(t *testing.T) {
	daemon := startDaemon(t, func(d *fakeDaemon) {
		d.state.Processes = []figures.ProcessState{{PID: 42, Cgroup: "/lab/ada"}, {PID: 43, Cgroup: "/lab/$(x)"}}
	})
	got := finish(t, gpuarb(t, daemon.environment(t), "__complete", "limit", "--cgroup", ""))
	if !strings.HasPrefix(got.stdout, "/lab/ada\n") || strings.Contains(got.stdout, "$") {
		t.Errorf("completion offers\n%v", got)
	}
}

// TestCompleteDevices checks that completion offers for each flag the devices that the command
// accepts there: the processor only for --device of run and limit, any only for --device of run
// and claim, and emptiest only for --device of run.
func TestCompleteDevices(t *testing.T) {
	daemon := startDaemon(t, func(d *fakeDaemon) {
		d.state.Devices = append(d.state.Devices[:1], figures.DeviceState{Index: 1, Vendor: accounting.VendorCPU, Name: "CPU"})
	})
	for line, want := range map[string]string{"run --device": "any emptiest 0 1", "run --prefer": "0", "claim --device": "any 0", "claim --prefer": "0", "limit --device": "0 1", "ps --device": "0 1", "plan --device": "0"} {
		got := finish(t, gpuarb(t, daemon.environment(t), append([]string{"__complete"}, append(strings.Fields(line), "")...)...))
		var words []string
		for line := range strings.Lines(got.stdout) {
			if word, _, ok := strings.Cut(line, "\t"); ok {
				words = append(words, word)
			}
		}
		if text := strings.Join(words, " "); text != want {
			t.Errorf("%s offers %q, want %q\n%v", line, text, want, got)
		}
	}
}

func TestQueueCancel(t *testing.T) {
	daemon := startDaemon(t, nil)
	got := finish(t, gpuarb(t, daemon.environment(t), "queue", "cancel", "404", "13"))
	wantCode(t, got, 1)
	wantStderr(t, got, "ticket 404 does not wait (any more); `gpuarb queue` lists those that do")
	for _, ticket := range []uint64{404, 13} {
		if request := await(t, "the Cancel", daemon.cancels); request != (ipc.CancelRequest{Ticket: ticket}) {
			t.Errorf("asked for %+v, want ticket %d", request, ticket)
		}
	}
}

func TestLimit(t *testing.T) {
	daemon := startDaemon(t, nil)
	for args, want := range map[string]ipc.LimitRequest{
		"42 memory.max=2G": {Target: ipc.LimitProcess, ID: 42, Device: ipc.AllDevices, Set: ipc.SetMax, Max: 2 << 30},
		"42 memory.max=max memory.min=25% streams.max=8": {Target: ipc.LimitProcess, ID: 42, Device: ipc.AllDevices,
			Set: ipc.SetMax | ipc.SetMin | ipc.SetStreams, Max: ipc.NoLimit, Min: ipc.NoLimit, MinShare: 250, Streams: 8},
		"--device GPU-11b 42 memory.min=0": {Target: ipc.LimitProcess, ID: 42, Device: 1, Set: ipc.SetMin},
		"--job 7 memory.max=1":             {Target: ipc.LimitJob, ID: 7, Device: ipc.AllDevices, Set: ipc.SetMax, Max: 1},
		"--device 0 slots.max=2":           {Target: ipc.LimitDevice, Set: ipc.SetSlots, Slots: 2},
		"slots.max=max --device 2":         {Target: ipc.LimitDevice, Device: 2, Set: ipc.SetSlots},
	} {
		got := finish(t, gpuarb(t, daemon.environment(t), append([]string{"limit"}, strings.Fields(args)...)...))
		if got.code != 0 || got.stdout+got.stderr != "" {
			t.Errorf("%s: code %d\n%v", args, got.code, got)
			continue
		}
		daemon.mu.Lock()
		if request := daemon.limits[len(daemon.limits)-1]; request != want {
			t.Errorf("%s: asked for %+v\nwant %+v", args, request, want)
		}
		daemon.mu.Unlock()
	}
}

func TestDevices(t *testing.T) {
	daemon := startDaemon(t, nil)
	got := finish(t, gpuarb(t, daemon.environment(t), "devices"))
	if got.code != 0 || strings.Count(got.stdout, "\n") != 4 || !strings.Contains(got.stdout, "Card B") {
		t.Errorf("code %d\n%v", got.code, got)
	}
	var devices []report.Device
	got = finish(t, gpuarb(t, daemon.environment(t), "devices", "--json"))
	if err := json.Unmarshal([]byte(got.stdout), &devices); err != nil || len(devices) != 3 || devices[1].Total != 16<<30 {
		t.Errorf("%v: %+v\n%v", err, devices, got)
	}
	bare := startDaemon(t, func(d *fakeDaemon) { d.state.Devices = nil })
	got = finish(t, gpuarb(t, bare.environment(t), "devices", "--json"))
	if got.code != 69 || got.stdout != "[]\n" {
		t.Errorf("without a device: code %d\n%v", got.code, got)
	}
}

func TestVersion(t *testing.T) {
	daemon := startDaemon(t, nil)
	none := []string{"GPUARB_SOCKET=/no/socket"}
	for _, c := range []struct {
		env  []string
		args string
		want string
	}{
		{daemon.environment(t), "version", "gpuarb VERSION\ngpuarbd 9.9\n"},
		{none, "version", "gpuarb VERSION\ngpuarbd none answers\n"},
		{daemon.environment(t), "version --json", "{\n  \"client\": \"VERSION\",\n  \"daemon\": \"9.9\"\n}\n"},
		{none, "version --json", "{\n  \"client\": \"VERSION\",\n  \"daemon\": null\n}\n"},
		{none, "--version", "gpuarb VERSION\n"},
	} {
		got := finish(t, gpuarb(t, c.env, strings.Fields(c.args)...))
		want := strings.ReplaceAll(c.want, "VERSION", version.Version)
		if got.code != 0 || got.stdout != want || got.stderr != "" {
			t.Errorf("%s: code %d\n%v\nwant:\n%s", c.args, got.code, got, want)
		}
	}
}

func TestPlan(t *testing.T) {
	for _, c := range []struct {
		env, args, stdout, stderr string
	}{
		{"", "--copies 4 --streams 8", "4 copies × 8 streams × 256 MiB = 8 GiB (8589934592 bytes)", ""},
		{"", "--arms 1 --streams 1 --stream-reserve 1.5G", "1 copy × 1 stream × 1.5 GiB = 1.5 GiB (1610612736 bytes)", ""},
		{"GPUARB_STREAM_RESERVE=64M", "--arms 2 --streams 2", "2 copies × 2 streams × 64 MiB = 256 MiB (268435456 bytes)", ""},
		{"GPUARB_STREAM_RESERVE=1G", "--arms 2 --streams 2", "2 copies × 2 streams × 1 GiB = 4 GiB (4294967296 bytes)", ""},
		{"GPUARB_STREAM_RESERVE=64", "--arms 2 --streams 2 --stream-reserve 1K", "2 copies × 2 streams × 1 KiB = 4 KiB (4096 bytes)", ""},
		{"GPUARB_STREAM_RESERVE=much", "--arms 1 --streams 1", "1 copy × 1 stream × 256 MiB = 256 MiB (268435456 bytes)",
			`gpuarb: GPUARB_STREAM_RESERVE=much is ignored: "much" is no size: it does not start with a number; write bytes, "4GiB", "25%" or "max"` + "\n"},
		{"", "--arms 4 --streams 4", "4 copies × 4 streams × 256 MiB = 4 GiB (4294967296 bytes)", ""},
		{"GPUARB_STREAM_RESERVE=0", "--arms 4 --streams 4", "4 copies × 4 streams × 256 MiB = 4 GiB (4294967296 bytes)",
			"gpuarb: GPUARB_STREAM_RESERVE=0 is ignored: must be above 0\n"},
		{"GPUARB_STREAM_RESERVE=-1", "--arms 4 --streams 4", "4 copies × 4 streams × 256 MiB = 4 GiB (4294967296 bytes)",
			`gpuarb: GPUARB_STREAM_RESERVE=-1 is ignored: "-1" is no size: it is negative` + "\n"},
		{"", "--arms 18446744073709551615 --streams 2", "18446744073709551615 copies × 2 streams × 256 MiB = at least 15.9 EiB (18446744073709551615 bytes)", ""},
		{"", "--arms 0 --streams 2", "0 copies × 2 streams × 256 MiB = 0 bytes (0 bytes)", ""},
		{"", "--arms 1 --streams 3 --json", `{
  "arms": 1,
  "copies": 1,
  "streams": 3,
  "stream_reserve_bytes": 268435456,
  "total_bytes": 805306368,
  "saturated": false
}`, ""},
	} {
		var env []string
		if c.env != "" {
			env = append(env, c.env)
		}
		got := finish(t, gpuarb(t, env, append([]string{"plan"}, strings.Fields(c.args)...)...))
		if got.code != 0 || got.stdout != c.stdout+"\n" || got.stderr != c.stderr {
			t.Errorf("%s %s: code %d\n%v\nwant:\n%s", c.env, c.args, got.code, got, c.stdout)
		}
	}
}

func TestConfigCheck(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "g.toml")
	for _, c := range []struct {
		text           string
		code           int
		stdout, stderr string
	}{
		{"schema_version = 1", 0, "FILE: no mistakes\n", ""},
		{"schema_version = 1\n[[rule]]\nmemory.max = 4\n[[rule]]\nmatch.user = \"nobody-of-that-name\"", 0, "FILE: no mistakes\n",
			"FILE:3: warning: memory.max is 4 bytes; did you mean \"4GiB\"?\n" +
				"FILE:4: warning: this rule is never used: rule 1 (g.toml:2), which comes first, matches everybody\n" +
				"FILE:5: warning: match.user: there is no user \"nobody-of-that-name\" on this machine\n"},
		{"schema_version = 1\n[defaults]\nscope = \"x\"\npriority = 1.5", 78, "",
			"FILE:3: scope: must be \"job\" or \"process\" or \"user\" or \"cgroup\" or \"rule\", not \"x\"\n" +
				"FILE:4: priority: must be an integer, not 1.5\ngpuarb: 2 mistakes in the configuration\n"},
	} {
		if err := os.WriteFile(file, []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		replace := strings.NewReplacer("FILE", file)
		got := finish(t, gpuarb(t, nil, "config", "check", file))
		if got.code != c.code || got.stdout != replace.Replace(c.stdout) || got.stderr != replace.Replace(c.stderr) {
			t.Errorf("%q: code %d\n%v", c.text, got.code, got)
		}
	}
	// Without a file, the command checks the file of the daemon that answers. If no daemon answers,
	// it says which file it checks.
	d := startDaemon(t, func(d *fakeDaemon) { d.state.Config.Path = file })
	if got := finish(t, gpuarb(t, d.environment(t), "config", "check")); got.code != 78 || !strings.HasPrefix(got.stderr, file+":3: ") {
		t.Errorf("of the daemon: code %d\n%v", got.code, got)
	}
	none := "gpuarb: no daemon answers that could say which file it reads: " + config.DefaultPath + " is looked at\n"
	got := finish(t, gpuarb(t, []string{"GPUARB_SOCKET=" + filepath.Join(folder, "none")}, "config", "check"))
	if !strings.HasPrefix(got.stderr, none) || !strings.Contains(got.String(), config.DefaultPath) {
		t.Errorf("without a daemon: code %d\n%v", got.code, got)
	}
	got = finish(t, gpuarb(t, nil, "config", "check", "--json", file))
	var result checkResult
	err := json.Unmarshal([]byte(got.stdout), &result)
	if err != nil || got.code != 78 || result.OK || len(result.Mistakes) != 2 ||
		*result.Mistakes[1].Line != 4 || result.Mistakes[1].Reason != "priority: must be an integer, not 1.5" {
		t.Errorf("code %d, %v: %+v", got.code, err, result)
	}
}

func TestFindDevice(t *testing.T) {
	devices := twoDevices()
	for name, want := range map[string]int{
		"0": 0, "1": 1,
		"GPU-11aa0000-0000-0000-0000-000000000000": 0,
		"GPU-11b":          1,
		"gpu-11BB":         1,
		"11b":              1,
		"0000:02:00.0":     1,
		"02:00.0":          1,
		"00000000:01:00.0": 0,
	} {
		if got, err := findDevice(devices, name); err != nil || got.Index != want {
			t.Errorf("%q is taken for %d, %v; want %d", name, got.Index, err, want)
		}
	}
	list := report.ListDevices(devices)
	for name, want := range map[string]string{
		"7":            `there is no device "7"; there are ` + list,
		"gpu-x":        `there is no device "gpu-x"; there are ` + list,
		"0001:01:00.0": `there is no device "0001:01:00.0"; there are ` + list,
		"GPU-11":       `device "GPU-11" is not clear; it may be ` + report.ListDevices(devices[:2]),
		"-1":           `there is no device "-1"; there are ` + list,
	} {
		if got, err := findDevice(devices, name); err == nil || err.Error() != want {
			t.Errorf("%q is taken for %d, %v\nwant %s", name, got.Index, err, want)
		}
	}
}

// TestExplainCall checks that a refusal without a text still names the daemon and the reason.
func TestExplainCall(t *testing.T) {
	daemon := startDaemon(t, func(d *fakeDaemon) {
		d.refuse[ipc.TypeSnapshot] = &ipc.ProtocolError{Status: ipc.StatusShuttingDown, Text: ""}
	})
	got := finish(t, gpuarb(t, daemon.environment(t), "ps"))
	wantCode(t, got, 69)
	wantStderr(t, got, "the daemon at "+daemon.socket+" refused: shutting down")
}

func TestMetrics(t *testing.T) {
	daemon := startDaemon(t, nil)
	if got := finish(t, gpuarb(t, daemon.environment(t), "metrics")); got.code != 0 || got.stdout != "gpuarb_clients 3\n" {
		t.Errorf("%v", got)
	}
	old := startDaemon(t, func(d *fakeDaemon) {
		d.refuse[ipc.TypeMetrics] = &ipc.ProtocolError{Status: ipc.StatusUnknownType, Text: "no request has type 28"}
	})
	got := finish(t, gpuarb(t, old.environment(t), "metrics"))
	wantCode(t, got, 69)
	wantStderr(t, got, "the daemon at "+old.socket+" is older than this gpuarb, and has no metrics")
}
