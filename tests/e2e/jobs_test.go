package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/internal/report"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold that tables, files and `gpuarb why` name every holder of a device and every waiting job, and that
// tables fit a terminal. whoselimit_test.go has the setters of limits.

// busyMachine is a machine with one holder of each kind on two devices: a job with a lease and a reservation,
// an idle job that has a device exclusively, a program without gpuarb, and a job
// that waits.
type busyMachine struct {
	*rig.Machine
	lease, alone, unmanaged *rig.Program
}

func newBusyMachine(t *testing.T) busyMachine {
	t.Helper()
	m := busyMachine{Machine: rig.New(t, rig.Options{Devices: "8G,8G"})}
	m.alone = m.Interact(m.Gpuarb("run", "--exclusive", "--device", "1", "--", cudaprog(t, "dlsym")))
	m.lease = m.Interact(m.Gpuarb("run", "--memory", "4G", "--min", "2G", "--device", "0", "--", cudaprog(t, "dlsym")))
	m.lease.Want("alloc a 8M", "ok")
	m.unmanaged = m.Interact(m.Command(m.Env(), cudaprog(t, "dlsym")))
	m.unmanaged.Want("alloc a 1G", "ok")
	waits := m.Gpuarb("run", "--memory", "7G", "--min", "7G", "--device", "0", "--", "true")
	if err := waits.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = waits.Process.Kill(); _ = waits.Wait() })
	rig.Eventually(t, "a job waits, and the daemon counts the program without gpuarb", func() bool {
		s := m.Snapshot()
		return len(s.Queue) == 1 && len(s.Devices[0].UnmanagedBy) == 1
	})
	return m
}

// fieldsOf returns the columns of the table line that contains a text.
func fieldsOf(t *testing.T, table, with string) map[string]string {
	t.Helper()
	lines := strings.Split(table, "\n")
	names := strings.Fields(lines[0])
	for _, line := range lines[1:] {
		if fields := strings.Fields(line); strings.Contains(line, with) && len(fields) >= len(names) {
			row := map[string]string{}
			for i, name := range names {
				row[name] = fields[i]
			}
			return row
		}
	}
	t.Fatalf("no line with %q in\n%s", with, table)
	return nil
}

// TestWhoHoldsWhat: gpuarb jobs and the files show every holder with its user and how it holds the device: by lease,
// by reservation, exclusively or as unmanaged. They also show waiting jobs.
func TestWhoHoldsWhat(t *testing.T) {
	t.Parallel()
	m := newBusyMachine(t)
	user := rig.User()
	check := func(row map[string]string, want map[string]string) {
		t.Helper()
		for name, value := range want {
			if row[name] != value {
				t.Errorf("%s is %q, want %q: %v", name, row[name], value, row)
			}
		}
	}
	jobs := rig.Run(t, m.Gpuarb("jobs")).Stdout
	check(fieldsOf(t, jobs, "reservation"), map[string]string{"GPU": "0", "USER": user, "HOLDS": "lease,reservation", "USED": "8MiB", "RESERVED": "2GiB", "WAITS": "-"})
	check(fieldsOf(t, jobs, "exclusive"), map[string]string{"GPU": "1", "USER": user, "USED": "0B", "WAITS": "-"})
	check(fieldsOf(t, jobs, "unmanaged"), map[string]string{"GPU": "0", "USER": user, "JOB": "-", "PID": fmt.Sprint(m.unmanaged.PID())})
	check(fieldsOf(t, jobs, "7GiB"), map[string]string{"GPU": "0", "USER": user, "HOLDS": "-", "USED": "0B", "COMMAND": "true"})
	files := m.Read("holders")
	check(fieldsOf(t, files, "reservation"), map[string]string{"USED": "8388608", "RESERVED": "2147483648"})

	for name, table := range map[string]string{"all": m.Read("unmanaged"), "device 0": m.Read("devices/0/unmanaged")} {
		row := fieldsOf(t, table, fmt.Sprint(m.unmanaged.PID()))
		check(row, map[string]string{"USER": user, "GPU": "0"})
		if name == "all" && row["COMMAND"] == "?" {
			t.Errorf("no command: %v", row)
		}
	}
	if n := strings.Count(m.Read("devices/1/unmanaged"), "\n"); n != 1 {
		t.Errorf("%d lines of device 1", n)
	}

	devices := rig.Run(t, m.Gpuarb("devices")).Stdout
	holder := fieldsOf(t, devices, "exclusive")["HOLDER"]
	if !strings.HasPrefix(holder, user+":") || !strings.HasSuffix(holder, "]") {
		t.Errorf("HOLDER %q in\n%s", holder, devices)
	}
	check(fieldsOf(t, devices, "  0 ok"), map[string]string{"RESERVED": "2GiB", "HOLDER": "-"})
	check(fieldsOf(t, rig.Run(t, m.Gpuarb("devices", "--bytes")).Stdout, "  0 ok"), map[string]string{"RESERVED": "2147483648"})
	ps := rig.Run(t, m.Gpuarb("ps")).Stdout
	check(fieldsOf(t, ps, "exclusive"), map[string]string{"GPU": "1", "USER": user, "USED": "0B"})
	check(fieldsOf(t, ps, "running"), map[string]string{"USED": "8MiB", "BUDGET": "4GiB"})
	check(fieldsOf(t, rig.Run(t, m.Gpuarb("ps", "--bytes")).Stdout, "running"), map[string]string{"USED": "8388608", "BUDGET": "4294967296"})

	var rows []report.Holder
	if err := json.Unmarshal([]byte(rig.Run(t, m.Gpuarb("jobs", "--json")).Stdout), &rows); err != nil || len(rows) != 4 {
		t.Fatalf("%v: %+v", err, rows)
	}
	for _, r := range rows {
		if slices.Contains(r.Holds, "unmanaged") != (r.Job == nil) || r.User == nil || *r.User != user {
			t.Errorf("%+v", r)
		}
	}
}

// TestWhy: gpuarb why says what limits a job, which jobs hold what it waits for, and what to do. For
// a program without gpuarb it says that nothing limits the program.
func TestWhy(t *testing.T) {
	t.Parallel()
	m := newBusyMachine(t)
	user := rig.User()
	waiting := m.Snapshot().Queue[0]
	for number, want := range map[uint64][]string{
		waiting.Job: {": " + user + "'s true, PID", "budget of 7 GiB (by gpuarb run --memory)", "waits for its memory.min of 7 GiB on GPU 0",
			"holds: " + user + "'s ", fmt.Sprintf("`gpuarb queue cancel %d`", waiting.Ticket)},
		uint64(m.lease.PID()): {"uses 8 MiB of its budget of 4 GiB", "2 GiB are reserved for it", "it waits for nothing", "under the defaults"},
	} {
		r := rig.Run(t, m.Gpuarb("why", fmt.Sprint(number)))
		for _, text := range want {
			if r.Code != 0 || !strings.Contains(r.Stdout, text) {
				t.Errorf("gpuarb why %d (%d) does not say %q:\n%s%s", number, r.Code, text, r.Stdout, r.Stderr)
			}
		}
	}
	if r := rig.Run(t, m.Gpuarb("why")); strings.Count(r.Stdout, "\njob ") != 2 {
		t.Errorf("of all my jobs:\n%s%s", r.Stdout, r.Stderr)
	}
	inside := rig.Run(t, m.Gpuarb("run", "--name", "asks", "--", rig.Build(t, "gpuarb"), "why"))
	if strings.Count("\n"+inside.Stdout, "\njob ") != 1 || !strings.Contains(inside.Stdout, "asks") {
		t.Errorf("inside of a job, of that job:\n%s%s", inside.Stdout, inside.Stderr)
	}
	for number, want := range map[string]string{fmt.Sprint(m.unmanaged.PID()): "runs without gpuarb", "999999999": "neither a process"} {
		if r := rig.Run(t, m.Gpuarb("why", number)); r.Code != 1 || !strings.Contains(r.Stderr, want) {
			t.Errorf("gpuarb why %s: %d, %s", number, r.Code, r.Stderr)
		}
	}
}

// TestTerminal: on a terminal, tables fit its width and figures are rounded.
func TestTerminal(t *testing.T) {
	t.Parallel()
	m := newBusyMachine(t)
	for _, width := range []int{60, 80} {
		for _, command := range []string{"ps", "jobs", "devices", "queue"} {
			out := onTerminal(t, width, m.Gpuarb(command))
			for _, line := range strings.Split(out, "\n") {
				if n := len([]rune(strings.TrimRight(line, "\r"))); n > width {
					t.Errorf("gpuarb %s: %d columns on %d: %s", command, n, width, line)
				}
			}
			if command != "devices" && !strings.Contains(out, "GiB") || !strings.Contains(out, rig.User()) {
				t.Errorf("gpuarb %s on a terminal:\n%s", command, out)
			}
		}
	}
}

// TestClaimOnATerminal: gpuarb claim on a terminal tells its user what to do with the output.
func TestClaimOnATerminal(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G", NoMount: true})
	env := append(m.Env(), "GPUARB_SOCKET="+m.Socket, "G="+rig.Build(t, "gpuarb"))
	out := onTerminal(t, 200, m.Command(env, "bash", "-c", `"$G" claim 2>&1; "$G" claim --release 2>&1`))
	for _, want := range []string{`this shell holds GPU 0, and nothing has read its variables; write eval "$(gpuarb claim)"`, `the claim is given back`} {
		if strings.Count(out, want) != 1 {
			t.Errorf("not once %q in\n%s", want, out)
		}
	}
}

// onTerminal runs a command on a terminal, and returns what it printed there.
func onTerminal(t *testing.T, width int, cmd *exec.Cmd) string {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: uint16(width)}); err != nil {
		t.Fatal(err)
	}
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = terminal
	done := make(chan string)
	go func() {
		var text []byte
		for buf := make([]byte, 4096); ; {
			n, err := master.Read(buf)
			text = append(text, buf[:n]...)
			if err != nil { // EIO when no process has the other side open
				done <- string(text)
				return
			}
		}
	}()
	r := rig.Run(t, cmd)
	terminal.Close()
	out := <-done
	if r.Code != 0 {
		t.Errorf("%v: %d, %s", cmd.Args, r.Code, r.Stderr)
	}
	return out
}
