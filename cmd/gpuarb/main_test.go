package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/internal/events"
	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/internal/report"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/tests/bounded"
)

// This file has the equipment of this package's tests: the test binary as gpuarb, a daemon whose
// answers a test sets, and checks of output and exit code. Its own test goes through the table of
// exit codes and messages; documents_test.go compares that table with the manual pages.

// asGpuarb in the environment makes the test binary run as gpuarb.
const asGpuarb = "TEST_BINARY_IS_GPUARB"

// asCounter in the environment makes the test binary a program that counts the interrupts it gets.
const asCounter = "TEST_BINARY_COUNTS_INTERRUPTS"

func TestMain(m *testing.M) {
	if os.Getenv(asGpuarb) != "" || len(os.Args) >= 2 && os.Args[1] == keeperName {
		if err := os.Unsetenv(asGpuarb); err != nil {
			panic(err)
		}
		main()
	}
	if os.Getenv(asCounter) != "" {
		countInterrupts()
		os.Exit(6)
	}
	os.Exit(m.Run())
}

// countInterrupts waits for an interrupt, and then for some time for further ones.
func countInterrupts() {
	caught := make(chan os.Signal, 10)
	signal.Notify(caught, os.Interrupt)
	fmt.Println("ready")
	<-caught
	enough := time.After(300 * time.Millisecond)
	for n := 1; ; n++ {
		select {
		case <-caught:
		case <-enough:
			fmt.Println("count", n)
			return
		}
	}
}

// fakeDaemon answers as the daemon does, with a state that the test sets.
type fakeDaemon struct {
	socket string
	ear    *ipc.Listener
	state  figures.Snapshot
	events []byte // nil: one event
	refuse map[ipc.Type]*ipc.ProtocolError

	// How the request for a job ends: with status and the devices, after the notices. If serve is
	// not nil, the request waits until serve is closed.
	status  ipc.Status
	text    string
	given   []ipc.JobDevice
	notices []ipc.WaitingReply
	serves  chan struct{}
	dies    bool         // after the notices, and for good
	leaving atomic.Int32 // number of further Hello requests without an answer, as from a daemon that stops

	mu      sync.Mutex
	jobs    []ipc.JobOpenRequest
	limits  []ipc.LimitRequest
	cancels chan ipc.CancelRequest
	givenUp chan struct{}  // receives for each request that its client gave up
	closed  chan ipc.Token // jobs that were closed
	ends    chan struct{}  // receives for each connection that ended
}

var testJob = ipc.Token{0xab, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0xff}

const testJobHex = "ab0102030405060708090a0b0c0d0eff"

// cardB is the second device of twoDevices, as the daemon names it to a job.
var cardB = ipc.JobDevice{Index: 1, Vendor: ipc.VendorNVIDIA, Ordinal: 1, UUID: ipc.UUID{0x11, 0xbb}}

func twoDevices() []figures.DeviceState {
	return []figures.DeviceState{
		{Index: 0, Vendor: "nvidia", Name: "Card A", UUID: "GPU-11aa0000-0000-0000-0000-000000000000", PCI: "0000:01:00.0", Total: 8 << 30},
		{Index: 1, Vendor: "nvidia", Name: "Card B", UUID: "GPU-11bb0000-0000-0000-0000-000000000000", PCI: "0000:02:00.0", Total: 16 << 30},
		{Index: 2, Vendor: "intel", Name: "Card C", UUID: "8086-0001", PCI: "0000:00:02.0", Total: 1 << 30},
	}
}

func startDaemon(t *testing.T, edit func(*fakeDaemon)) *fakeDaemon {
	t.Helper()
	d := &fakeDaemon{
		socket: filepath.Join(t.TempDir(), "s"),
		state:  figures.Snapshot{Version: "9.9", Devices: twoDevices()},
		refuse: map[ipc.Type]*ipc.ProtocolError{},
		ends:   make(chan struct{}, 100),

		cancels: make(chan ipc.CancelRequest, 100),
		givenUp: make(chan struct{}, 100),
		closed:  make(chan ipc.Token, 100),
	}
	if edit != nil {
		edit(d)
	}
	listener, err := ipc.Listen(d.socket, ipc.ListenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	d.ear = listener
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go d.serve(conn)
		}
	}()
	return d
}

func (d *fakeDaemon) serve(conn *ipc.Conn) {
	defer func() { conn.Close(); d.ends <- struct{}{} }()
	parked := &parkedJob{}
	for {
		message, err := conn.ReadMessage()
		if err != nil {
			return
		}
		header := message.Header
		if refusal := d.refuse[header.Type]; refusal != nil {
			err = conn.ReplyError(header, refusal)
		} else {
			err = d.answer(conn, message, parked)
		}
		if err != nil {
			return
		}
	}
}

// parkedJob is a request for a job that waits on a connection.
type parkedJob struct {
	once   sync.Once
	answer func(ipc.Status)
}

func (d *fakeDaemon) answer(conn *ipc.Conn, message ipc.Message, parked *parkedJob) error {
	ok := func() error { return ipc.Reply(conn, message.Header, ipc.StatusOK, &ipc.Empty{}, -1) }
	switch message.Header.Type {
	case ipc.TypeHello:
		var request ipc.HelloRequest
		if err := ipc.Unmarshal(message.Body, &request); err != nil {
			return err
		}
		reply := &ipc.HelloReply{Devices: uint32(len(d.state.Devices))}
		if request.Job == testJob {
			reply.InJob = 1
		}
		switch left := d.leaving.Add(-1); {
		case left < 0:
			return ipc.Reply(conn, message.Header, ipc.StatusOK, reply, -1)
		case left%2 == 0:
			return conn.ReplyError(message.Header, &ipc.ProtocolError{Status: ipc.StatusShuttingDown, Text: "it ends"})
		}
		return io.EOF
	case ipc.TypeSnapshot:
		text, err := json.Marshal(d.state)
		if err != nil {
			return err
		}
		return conn.ReplySnapshot(message.Header, text, time.Second)
	case ipc.TypeEvents:
		lines := d.events
		if lines == nil {
			e := events.Event{Kind: events.Configured, Text: "a configuration is in force"}
			lines = e.Line()
		}
		var request ipc.EventsRequest
		if err := ipc.Unmarshal(message.Body, &request); err != nil {
			return err
		}
		part := ipc.EventsPart{Daemon: 1, Next: 1, Last: 1}
		if request.Flags&ipc.EventsFollow != 0 {
			part.Last = 0 // with EventsFollow no part is the last one; this daemon sends just one
		}
		return conn.ReplyEvents(message.Header, part, lines)
	case ipc.TypeMetrics:
		return conn.ReplySnapshot(message.Header, []byte("gpuarb_clients 3\n"), time.Second)
	case ipc.TypeJobOpen:
		var request ipc.JobOpenRequest
		if err := ipc.Unmarshal(message.Body, &request); err != nil {
			return err
		}
		return d.openJob(conn, message.Header, request, parked)
	case ipc.TypeCancel:
		var request ipc.CancelRequest
		if err := ipc.Unmarshal(message.Body, &request); err != nil {
			return err
		}
		d.cancels <- request
		cancelled := uint64(1)
		if request.Ticket == 404 {
			cancelled = 0
		}
		return ipc.Reply(conn, message.Header, ipc.StatusOK, &ipc.CancelReply{Cancelled: cancelled}, -1)
	case ipc.TypeGiveUp: // this message has no reply of its own
		if parked.answer != nil {
			parked.answer(ipc.StatusCancelled)
		}
		d.givenUp <- struct{}{}
		return nil
	case ipc.TypeJobClose:
		var request ipc.JobCloseRequest
		if err := ipc.Unmarshal(message.Body, &request); err != nil {
			return err
		}
		d.closed <- request.Job
		return ok()
	case ipc.TypeLimit:
		var request ipc.LimitRequest
		if err := ipc.Unmarshal(message.Body, &request); err != nil {
			return err
		}
		d.mu.Lock()
		d.limits = append(d.limits, request)
		d.mu.Unlock()
		return ok()
	}
	return conn.ReplyError(message.Header, &ipc.ProtocolError{Status: ipc.StatusUnsupported, Text: "the fake daemon does not know this"})
}

// openJob answers at once, or parks the request.
func (d *fakeDaemon) openJob(conn *ipc.Conn, header ipc.Header, request ipc.JobOpenRequest, parked *parkedJob) error {
	d.mu.Lock()
	d.jobs = append(d.jobs, request)
	d.mu.Unlock()
	parked.answer = func(status ipc.Status) {
		parked.once.Do(func() {
			reply := ipc.JobOpenReply{Text: ipc.MakeText(d.text)}
			if status == ipc.StatusOK {
				reply = ipc.JobOpenReply{Job: testJob, ID: 7, Devices: uint32(len(d.given))}
				copy(reply.Device[:], d.given)
			}
			_ = ipc.Reply(conn, header, status, &reply, -1)
		})
	}
	for i := range d.notices {
		if err := conn.Notice(header, &d.notices[i]); err != nil {
			return err
		}
	}
	if d.dies {
		return errors.Join(d.ear.Close(), io.EOF)
	}
	if d.serves == nil {
		parked.answer(d.status)
		return nil
	}
	go func() {
		<-d.serves
		parked.answer(d.status)
	}()
	return nil
}

// lastJob returns the latest request for a job.
func (d *fakeDaemon) lastJob(t *testing.T) ipc.JobOpenRequest {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.jobs) == 0 {
		t.Fatal("no job was opened")
	}
	return d.jobs[len(d.jobs)-1]
}

// testLibrary returns a library of this machine that can be preloaded and changes nothing.
func testLibrary(t *testing.T) string {
	t.Helper()
	cache, err := os.ReadFile("/etc/ld.so.cache")
	if err != nil {
		t.Fatal(err)
	}
	for text := range strings.SplitSeq(string(cache), "\x00") { // the cache ends with a table of strings
		if strings.HasPrefix(text, "/") && filepath.Base(text) == "libm.so.6" {
			return text
		}
	}
	t.Fatal("this machine has no libm.so.6")
	return ""
}

// gpuarb prepares a run of the command with an environment of its own. It keeps only PATH of the
// test's environment; env adds variables.
func gpuarb(t *testing.T, env []string, args ...string) *exec.Cmd {
	t.Helper()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := bounded.Command(t, bounded.Patience, executable, args...)
	// The race detector would make every process sleep a second at its end.
	command.Env = append([]string{asGpuarb + "=1", "GORACE=atexit_sleep_ms=0", "PATH=" + os.Getenv("PATH")}, env...)
	if folder := os.Getenv("GOCOVERDIR"); folder != "" {
		command.Env = append(command.Env, "GOCOVERDIR="+folder)
	}
	return command
}

type outcome struct {
	code           int
	stdout, stderr string
}

func (o outcome) String() string {
	return "stdout: " + o.stdout + "\nstderr: " + o.stderr
}

// finish runs a command to its end.
func finish(t *testing.T, command *exec.Cmd) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	err := command.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return outcome{command.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// environment returns an environment in which a run finds the daemon and a library.
func (d *fakeDaemon) environment(t *testing.T, more ...string) []string {
	t.Helper()
	return append(slices.Clip(more), "GPUARB_SOCKET="+d.socket, "GPUARB_LIB="+testLibrary(t))
}

func wantCode(t *testing.T, got outcome, code int) {
	t.Helper()
	if got.code != code {
		t.Errorf("exit code %d, want %d\n%v", got.code, code, got)
	}
}

func wantStderr(t *testing.T, got outcome, text string) {
	t.Helper()
	if got.stderr != "gpuarb: "+text+"\n" {
		t.Errorf("stderr:\n%swant:\ngpuarb: %s", got.stderr, text)
	}
}

// TestExitCodes checks the rows of the table in docs/reference/exit-codes.md.
func TestExitCodes(t *testing.T) {
	daemon := startDaemon(t, nil)
	bare := startDaemon(t, func(d *fakeDaemon) { d.state.Devices = nil })
	old := startDaemon(t, func(d *fakeDaemon) {
		d.refuse[ipc.TypeHello] = &ipc.ProtocolError{Status: ipc.StatusVersion, Text: "you speak 1, I speak 2"}
	})
	full := startDaemon(t, func(d *fakeDaemon) {
		d.refuse[ipc.TypeJobOpen] = &ipc.ProtocolError{Status: ipc.StatusPermission, Text: "the rule gives 1 GiB"}
	})
	busy := startDaemon(t, func(d *fakeDaemon) { d.status, d.text = ipc.StatusBusy, "GPU 0 is ann's" })
	late := startDaemon(t, func(d *fakeDaemon) { d.status, d.text = ipc.StatusTimeout, "waited 1s for GPU 0" })
	cancelled := startDaemon(t, func(d *fakeDaemon) { d.status, d.text = ipc.StatusCancelled, "its request was cancelled" })
	folder := t.TempDir()
	for name, text := range map[string]string{"noexec": "x", "good.toml": "schema_version = 1", "bad.toml": "schema_version = 1\ncolor = 1\n"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name   string
		daemon *fakeDaemon
		args   string
		code   int
		stderr string // after "gpuarb: "; "": nothing
	}{
		{"nothing", daemon, "", 2, "no command given; see `gpuarb --help`"},
		{"unknown command", daemon, "paint", 2, "unknown command \"paint\"; see `gpuarb --help`"},
		{"unknown flag", daemon, "ps --paint", 2, "unknown flag: --paint; see `gpuarb ps --help`"},
		{"surplus argument", daemon, "ps 3", 2, "gpuarb ps takes no arguments, and was given \"3\"; see `gpuarb ps --help`"},
		{"a command misspelled", daemon, "pss", 2, "unknown command \"pss\": did you mean ps? See `gpuarb --help`"},
		{"help for none", daemon, "help nope", 2, "unknown command \"nope\"; see `gpuarb help`"},
		{"help for one misspelled", daemon, "help queue cancle", 2, "unknown command \"queue cancle\": did you mean queue cancel? See `gpuarb help`"},
		{"a command below another misspelled", daemon, "queue cancle 3", 2, "unknown command \"queue cancle\": did you mean queue cancel? See `gpuarb queue --help`"},
		{"config misspelled", daemon, "config chekc", 2, "unknown command \"config chekc\": did you mean config check? See `gpuarb config --help`"},
		{"an argument too few", daemon, "queue cancel", 2, "gpuarb queue cancel needs an argument: gpuarb queue cancel TICKET… [flags]; see `gpuarb queue cancel --help`"},
		{"an argument too many", daemon, "config check a b", 2, "gpuarb config check takes one argument at most, and was given 2; see `gpuarb config check --help`"},
		{"help", daemon, "help ps", 0, ""},
		{"top without a terminal", daemon, "top", 2, "top needs a terminal that it can draw on; `gpuarb top --once` prints the same once, `watch gpuarb top --once --compact` again and again"},
		{"events", daemon, "events", 0, ""},
		{"events, unknown kind", daemon, "events --kind denied", 2, "--kind: there is no \"denied\"; there are granted, refused, waited, served, recalled, limit_changed, configured, died, ended, reclaimed, kept, deadlock, over, within, clamped, excess, two_copies, driver_limit, no_process, unmanaged, verified, device_found, device_lost, device_hung, device_woke, device_unknown, idle, aged, suspending, suspended, suspend_failed, resuming, resumed, stuck, lost"},
		{"top once", daemon, "top --once", 0, ""},
		{"top, unknown column", daemon, "top --sort size", 2, "--sort: there is no \"size\"; there are pid, user, gpu, state, used, budget, peak, age, wants, util, idle, waited and command"},
		{"top, too often", daemon, "top --interval 1ms", 2, "--interval: must be 100ms or longer"},
		{"ps", daemon, "ps", 0, ""},
		{"devices", daemon, "devices", 0, ""},
		{"no device", bare, "devices", 69, "no device: the daemon knows no GPU on this machine; `gpuarb doctor` says why"},
		{"other version", old, "ps", 69, "you speak 1, I speak 2"},
		{"version", daemon, "version", 0, ""},
		{"version, other daemon", old, "version", 0, ""},
		{"plan", daemon, "plan --arms 1 --streams 1", 0, ""},
		{"plan of reservations", daemon, "plan --arms 8 --min 2G", 0, ""},
		{"plan of reservations without a GPU", bare, "plan --arms 2 --min 1G", 69, "no device: the daemon knows no GPU on this machine; `gpuarb doctor` says why"},
		{"plan, nothing to reserve", daemon, "plan --arms 8 --min 0", 2, "--min: must be above 0"},
		{"plan, both", daemon, "plan --arms 8 --min 2G --streams 1", 2, "--min and --streams are planned one at a time: give one of them"},
		{"plan, neither", daemon, "plan --arms 8", 2, "nothing to plan for the copies: give --min SIZE, or --streams S"},
		{"plan, bad size", daemon, "plan --arms 1 --streams 1 --stream-reserve 1Q", 2, `--stream-reserve: "1Q" is no size: its unit "Q" is unknown; K, M, G, T (powers of 1024) and % are known`},
		{"plan, a negative number", daemon, "plan --arms -1 --streams 1", 2, `--arms: "-1" is no number from 0 to 18446744073709551615; see ` + "`gpuarb plan --help`"},
		{"ps, no boolean", daemon, "ps --json=perhaps", 2, `--json: "perhaps" is neither true nor false; see ` + "`gpuarb ps --help`"},
		{"good configuration", daemon, "config check DIR/good.toml", 0, ""},
		{"run: child's 0", daemon, "run true", 0, ""},
		{"run: child's 3", daemon, "run -- sh -c exit\t3", 3, ""},
		{"run: child's 125", daemon, "run -- sh -c exit\t125", 125, ""},
		{"run: child's signal", daemon, "run -- sh -c kill\t-9\t$$", 137, ""},
		{"run: nothing", daemon, "run", 125, "no program to run was given: gpuarb run [flags] -- COMMAND; see `gpuarb run --help`"},
		{"run: unknown flag", daemon, "run --paint true", 125, "unknown flag: --paint; see `gpuarb run --help`"},
		{"run: bad size", daemon, "run --memory 4X true", 125, `--memory: "4X" is no size: its unit "X" is unknown; K, M, G, T (powers of 1024) and % are known`},
		{"run: no memory", daemon, "run --memory 0 true", 125, "--memory: a program without any device memory needs no GPU; write more than 0"},
		{"run: no streams", daemon, "run --streams 0 true", 125, "--streams: 0 is no limit; write a number from 1 to 2147483647"},
		{"run: streams that are no number", daemon, "run --streams x true", 125, `--streams: "x" is no number from 1 to 2147483647; see ` + "`gpuarb run --help`"},
		{"run: too large", daemon, "run --memory 17G true", 125, "--memory: 17GiB is more than device 1 (Card B), the largest here, has: 16 GiB; ask for less, or for a share such as 50%"},
		{"run: too large for this one", daemon, "run --memory 9G --device 0 true", 125, "--memory: 9GiB is more than device 0 (Card A) has: 8 GiB; ask for less, or for a share such as 50%"},
		{"run: waits for too long", daemon, "run --wait=3000000000 true", 125, `invalid argument "3000000000" for "--wait" flag: "3000000000" is too long: write less than 2147483647 seconds, or max; see ` + "`gpuarb run --help`"},
		{"run: waits and not", daemon, "run --wait --no-wait true", 125, "--wait and --no-wait (of claim: --try) exclude each other: leave out one of the two"},
		{"run: refuses first, and all", daemon, "run --refuse-first --no-wait true", 125, "--refuse-first: with --no-wait each request without room is refused; leave out one of the two"},
		{"run: bad duration", daemon, "run --wait=soon true", 125, "invalid argument \"soon\" for \"--wait\" flag: \"soon\" is no duration; write 90s, 10m, 2h or max; see `gpuarb run --help`"},
		{"run: more reserved than allowed", daemon, "run --memory 1G --min 2G true", 125, "--min: 2G is more than the budget, --memory 1G"},
		{"run: more reserved than there is", daemon, "run --min 17G true", 125, "--min: 17GiB is more than device 1 (Card B), the largest here, has: 16 GiB; ask for less, or for a share such as 50%"},
		{"run: no wait at all", daemon, "run --wait 0 true", 125, "invalid argument \"0\" for \"--wait\" flag: must be above 0; --no-wait does not wait; see `gpuarb run --help`"},
		{"run: an empty device", daemon, "run --device= true", 125, "--device: it is empty; write an index, UUID or PCI address; `gpuarb devices` lists them"},
		{"run: a path as a name", daemon, "run --name a/b true", 125, `--name "a/b": it has a slash; a name has up to 64 printable characters, none of them a slash, and is no number`},
		{"run: a number as a name", daemon, "run --name 12 true", 125, `--name "12": it is a number, as a PID is; a name has up to 64 printable characters, none of them a slash, and is no number`},
		{"run: busy", busy, "run --no-wait true", 75, "GPU 0 is ann's"},
		{"run: too late", late, "run --wait=1 true", 124, "waited 1s for GPU 0"},
		{"run: cancelled", cancelled, "run true", 75, "its request was cancelled"},
		{"run: nothing to prefer", daemon, "run --device 0 --prefer 1 true", 125, "--prefer: there is nothing to prefer among the devices of --device; it goes with --device any"},
		{"claim: busy", busy, "claim --try", 75, "GPU 0 is ann's"},
		{"events: an empty user", daemon, "events --user=", 2, "--user: it is empty; without it, all events are shown"},
		{"events: an empty kind", daemon, "events --kind=", 2, "--kind: it is empty; without it, all events are shown"},
		{"claim: an empty device", daemon, "claim --device=", 2, "--device: it is empty; write an index, UUID or PCI address; `gpuarb devices` lists them"},
		{"claim: streams that are no number", daemon, "claim --streams x", 2, `--streams: "x" is no number from 1 to 2147483647; see ` + "`gpuarb claim --help`"},
		{"claim: tries and waits", daemon, "claim --try --wait", 2, "--wait and --no-wait (of claim: --try) exclude each other: leave out one of the two"},
		{"claim: too late", late, "claim --wait=1 --exec true", 124, "waited 1s for GPU 0"},
		{"claim: cancelled", cancelled, "claim", 75, "its request was cancelled"},
		{"claim: cancelled, a program", cancelled, "claim --exec true", 75, "its request was cancelled"},
		{"claim: no device", bare, "claim", 69, "no device: the daemon knows no GPU on this machine; `gpuarb doctor` says why"},
		{"claim: no such device", daemon, "claim --device 7", 69, "--device: there is no device \"7\"; there are " + report.ListDevices(twoDevices())},
		{"claim: refused", full, "claim", 1, "the rule gives 1 GiB"},
		{"claim: no program", daemon, "claim --exec", 2, "no program to run was given: gpuarb claim --exec COMMAND"},
		{"claim: a program alone", daemon, "claim true", 2, "unexpected argument \"true\"; to run a program, put --exec before it"},
		{"claim: child's 3", daemon, "claim --exec -- sh -c exit\t3", 3, ""},
		{"claim: not found", daemon, "claim --exec DIR/none", 127, "DIR/none cannot be executed: no such file or directory"},
		{"claim: for no process", daemon, "claim --for -3", 2, "--for: -3 is no PID; write a number from 1"},
		{"claim: nobody's", daemon, "claim --release", 0, "this shell has no claim"},
		{"claim: no claim", daemon, "claim --release 1", 1, "claim 1: there is no such claim (any more)"},
		{"queue", daemon, "queue", 0, ""},
		{"queue: cancel", daemon, "queue cancel 12", 0, ""},
		{"queue: cancel nothing", daemon, "queue cancel 404", 1, "ticket 404 does not wait (any more); `gpuarb queue` lists those that do"},
		{"queue: no ticket", daemon, "queue cancel x", 2, "\"x\" is no ticket; `gpuarb queue` shows their numbers"},
		{"limit: whose", daemon, "limit memory.max=1G", 2, "whose? Give a PID, --job, --user, --cgroup, --rule or --device"},
		{"limit: no job", daemon, "limit --job=-x memory.max=1G", 2, `--job: "-x" is neither the number nor the name of a job; ` + "`gpuarb jobs` shows both"},
		{"limit: no name", daemon, "limit --job x memory.max=1G", 1, `no job is called "x" (any more); ` + "`gpuarb jobs` shows those that there are"},
		{"limit: of nobody known", daemon, "limit 43", 1, "process 43 does not use gpuarb (any more); `gpuarb ps` lists those that do"},
		{"limit: whose are shown", daemon, "limit", 2, "whose? Give a PID, --job, --user, --cgroup, --rule or --device"},
		{"limit: no path of a cgroup", daemon, "limit --cgroup system.slice", 2, "--cgroup: \"system.slice\" is no path of a cgroup, which begins with a slash and has none at its end, nor two in a row"},
		{"limit: a path that ends in a slash", daemon, "limit --cgroup /system.slice/ memory.max=1G", 2, "--cgroup: \"/system.slice/\" is no path of a cgroup, which begins with a slash and has none at its end, nor two in a row"},
		{"limit: the root cgroup", daemon, "limit --cgroup /", 0, "no limit is set and nothing is reserved: the table is empty"},
		{"limit: of a device", daemon, "limit --device 0 memory.max=1G", 2, "\"memory.max\" is no limit of a device; there is slots.max"},
		{"limit: twice", daemon, "limit --user 7 memory.max=1M memory.max=2M", 2, "memory.max is given twice: give the value that you mean"},
		{"limit: of a process", daemon, "limit 42 slots.max=1", 2, "\"slots.max\" is no limit of a process or job; there are memory.max, memory.min and streams.max"},
		{"limit: bad size", daemon, "limit 42 memory.max=1Q", 2, `memory.max: "1Q" is no size: its unit "Q" is unknown; K, M, G, T (powers of 1024) and % are known`},
		{"limit: bad number", daemon, "limit --device 0 slots.max=0", 2, `slots.max: "0" is no number from 1 to 2147483647, and not max`},
		{"limit: no such user", daemon, "limit --user a\x1b[2Jb", 1, `this machine has no user a\x1b[2Jb`},
		{"limit: no such job", daemon, "limit --job 99", 1, "there is no job 99 (any more); `gpuarb jobs` lists them"},
		{"events about nobody", daemon, "events --user no-such-user", 1, "this machine has no user no-such-user, and no event is about one"},
		{"events about a number", daemon, "events --user 12345", 0, ""},
		{"run: no such device", bare, "run --device 0 true", 125, "--device: device \"0\": the daemon knows no GPU on this machine; `gpuarb doctor` says why"},
		{"run: refused", full, "run --memory 2G true", 125, "the job was refused: the rule gives 1 GiB"},
		{"run: other version", old, "run true", 125, "you speak 1, I speak 2"},
		{"run: not found", daemon, "run no-such-program", 127, "no-such-program: command not found in PATH (PATHS)"},
		{"run: no such path", daemon, "run DIR/none", 127, "DIR/none cannot be executed: no such file or directory"},
		{"run: no such path, which a terminal would obey", daemon, "run ./\x1b[2J", 127, `./\x1b[2J cannot be executed: no such file or directory`},
		{"run: not executable", daemon, "run DIR/noexec", 126, "DIR/noexec cannot be executed: permission denied"},
		{"run: a folder", daemon, "run DIR/", 126, "DIR/ cannot be executed: is a directory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			replace := strings.NewReplacer("DIR", folder, "PATHS", os.Getenv("PATH"))
			args := strings.Fields(c.args)
			for i := range args {
				args[i] = replace.Replace(args[i])
			}
			// A tab in the table stands for a space inside an argument.
			if before, script, found := strings.Cut(c.args, "sh -c "); found {
				args = append(strings.Fields(before), "sh", "-c", strings.ReplaceAll(script, "\t", " "))
			}
			got := finish(t, gpuarb(t, c.daemon.environment(t), args...))
			wantCode(t, got, c.code)
			got.stderr = unaddressed(got.stderr)
			if c.stderr != "" {
				wantStderr(t, got, replace.Replace(c.stderr))
			} else if got.stderr != "" {
				t.Errorf("stderr: %s", got.stderr)
			}
		})
	}
}
