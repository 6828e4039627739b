package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/tests/rig"
	"golang.org/x/sys/unix"
)

// These tests hold what `gpuarb top` shows and does on a real terminal, with and without colours, and that the commands
// on its documentation page work. cmd/gpuarb/top has the tests of single parts of the screen.

// colour matches an attribute that sets one of a terminal's colours.
var colour = regexp.MustCompile(`\x1b\[([0-9]+;)*[34][0-7]m`)

// inverse matches the attribute of the selected row.
var inverse = regexp.MustCompile(`\x1b\[(0;)?7m`)

// leave ends a script on a terminal by printing the exit status of the command before it. The first line of a screen may
// scroll off when tmux reports the end of the script.
const leave = `code=$?; echo; echo "left with $code"`

// TestTop uses gpuarb top on a real terminal: its keys, each kind of change, and a daemon that is
// killed and started again meanwhile.
func TestTop(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G", NoMount: true})
	program := rig.Build(t, "programs/cudaprog-dlsym")
	train := m.Interact(m.Gpuarb("run", "--name", "train", "--memory", "4G", "--", program))
	train.Want("alloc a 3G", "ok")
	waits := m.Begin(m.Gpuarb("run", "--name", "waits", "--min", "6G", "--wait=1h", "--", program))

	top := m.Terminal(80, 24, `stty -g >"$TMPDIR/before"; "$G" top; `+leave+`; stty -g >"$TMPDIR/after"; cmp "$TMPDIR/before" "$TMPDIR/after" && echo as before`)
	top.Await("GPU 0 Simulated GPU 0", "used 3GiB", "train: cudaprog-dlsym", "waits #1", "WANTS", "WAITED", ">")
	if !colour.MatchString(top.Painted()) {
		t.Error("there is no colour on the screen")
	}
	top.Press("t")
	top.Await("└─ cudaprog-dlsym")
	top.Press("t")
	top.AwaitGone("└─")
	top.Press("/", "W", "A", "I")
	top.Await("filter: WAI")
	top.AwaitGone("train")
	top.Press("Enter", "Enter") // keeps the filter, opens details
	top.Await("Limits", "place 1, ticket", "its memory.min of 6 GiB", "device_full")
	top.Press("Escape")
	top.AwaitGone("Limits")
	top.Press("Escape")
	top.Await("train: ", "waits: ")

	change(t, m, top)

	m.Kill()
	top.Await("no daemon", "the figures below are old", "train: ")
	top.Press("Home", "Enter") // top answers keys meanwhile
	top.Await("Limits", "gpuarb top")
	top.Press("q")
	m.Start()
	top.AwaitGone("no daemon")
	top.Await("train: ", "3GiB")

	top.Press("End", "c")
	top.Await("Cancel ticket", "waits for its memory.min of 6 GiB", "y yes")
	top.Press("y")
	if code := waits.Wait(); code != 75 {
		t.Errorf("the job whose ticket was cancelled ended with %d, want 75", code)
	}
	top.AwaitGone("waits: ")
	top.Press("Home", "k")
	top.Await("Send which signal to process", "t TERM")
	top.Press("t")
	top.Await("Send SIGTERM to process")
	top.Press("y")
	if code := train.Wait(); code != 128+int(unix.SIGTERM) {
		t.Errorf("the job whose program got SIGTERM ended with %d", code)
	}
	top.Await("nobody uses a device")
	top.Press("q")
	top.Await("left with 0", "as before")
	if screen := top.Screen(); strings.Contains(screen, "gpuarb top") {
		t.Errorf("something of it is left on the screen:\n%s", screen)
	}
}

// change lowers a limit in the first row twice: it answers the question with no, and then with yes.
func change(t *testing.T, m *rig.Machine, top *rig.Terminal) {
	t.Helper()
	budget := func() accounting.Bytes { return m.Snapshot().Leases[0].Budget }
	for _, answer := range []string{"n", "y"} {
		top.Press("Home", "l")
		top.Await("Which limit of process", "memory.max=")
		top.Press("2", "G", "Enter")
		top.Await("Set memory.max=2G of process", "y yes")
		if budget() != 4<<30 {
			t.Error("a limit was changed before the answer to the question")
		}
		top.Press(answer)
		if answer == "n" {
			top.Await("nothing was changed")
		}
	}
	top.Await("done: set memory.max=2G", "over")
	if got := budget(); got != 2<<30 {
		t.Errorf("the budget is %d, want 2 GiB", got)
	}
}

// TestTopBeginsWithAHistory: a new top shows how much of a device was taken before it began.
func TestTopBeginsWithAHistory(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G", NoMount: true})
	p := m.Interact(m.Gpuarb("run", "--", rig.Build(t, "programs/cudaprog-dlsym")))
	p.Want("alloc a 6G", "ok")
	recorded := func(least, most int8) func() bool {
		return func() bool {
			all := m.Snapshot().Devices[0].RecentPercent
			last := all[len(all)-1]
			return last >= least && last <= most
		}
	}
	rig.Eventually(t, "the daemon records what is taken", recorded(70, 100))
	p.Want("free a", "ok")
	rig.Eventually(t, "the daemon records that it is free again", recorded(0, 20))
	top := m.Terminal(200, 50, `"$G" top; `+leave)
	top.Await("GPU 0", "cudaprog-dlsym")
	// The graph is to the right of the bar and its percentage, and a column is five seconds.
	if screen := top.Screen(); !regexp.MustCompile(`(?m) [0-9]%.*[▁-█] *.?$`).MatchString(screen) {
		t.Errorf("the graph does not show the past:\n%s", screen)
	}
	top.Press("q")
	top.Await("left with 0")
}

// TestTopPlain: without colours the selection still shows; without UTF-8 only ASCII is drawn; without a
// terminal top says what to do.
func TestTopPlain(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G", NoMount: true})
	p := m.Interact(m.Command(m.PreloadEnv(), rig.Build(t, "programs/cudaprog-dlsym")))
	p.Want("alloc a 1G", "ok")
	top := m.Terminal(100, 30, `"$G" top; `+leave, "NO_COLOR=yes", "LC_ALL=C")
	top.Await("used 1GiB", ">")
	painted := top.Painted()
	if found := colour.FindString(painted); found != "" {
		t.Errorf("with NO_COLOR there is a colour: %q", found)
	}
	if !inverse.MatchString(painted) {
		t.Errorf("without colours the selected row is not marked: %q", painted)
	}
	if i := strings.IndexFunc(painted, func(r rune) bool { return r > '~' }); i >= 0 {
		t.Errorf("in the locale C there is %q on the screen", painted[i:])
	}
	top.Press("C-z") // a shell without job control would not resume it
	top.Await("cannot suspend: there is no shell that could resume it")
	top.Press("C-c")
	top.Await("left with 0")

	r := rig.Run(t, m.Gpuarb("top"))
	if r.Code != 2 || !strings.Contains(r.Stderr, "gpuarb top --once") || r.Stdout != "" {
		t.Errorf("without a terminal: %+v", r)
	}
	r = rig.Run(t, m.Gpuarb("top", "--once"))
	if r.Code != 0 || !strings.Contains(r.Stdout, "GPU 0 Simulated GPU 0") || !strings.Contains(r.Stdout, "cudaprog-dlsym") || strings.Contains(r.Stdout, "\x1b") {
		t.Errorf("--once: %+v", r)
	}
	p.End()
	m.Stop()
	if r = rig.Run(t, m.Gpuarb("top", "--once")); r.Code != 69 {
		t.Errorf("without a daemon: %+v", r)
	}
}

// TestTopPage runs the commands of docs/reference/top.md on a terminal, as the page has them. The command with ssh runs without ssh,
// which only provides a terminal.
func TestTopPage(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G", NoMount: true})
	page, err := os.ReadFile("../../docs/reference/top.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(page), "```sh\n")
	block, _, _ = strings.Cut(block, "```")
	path := "PATH=" + filepath.Dir(rig.Build(t, "gpuarb")) + ":" + os.Getenv("PATH")
	for line := range strings.Lines(block) {
		command, _, _ := strings.Cut(line, " #")
		terminal := m.Terminal(80, 24, "trap : INT; "+strings.TrimPrefix(strings.TrimSpace(command), "ssh -t host ")+"; "+leave, path)
		terminal.Await("GPU 0", "nobody uses a device")
		switch {
		case strings.HasPrefix(command, "watch"):
			terminal.Press("C-c")
			terminal.Await("left with") // ended by a signal, or by itself
			continue
		case !strings.Contains(command, "--once"):
			terminal.Press("q")
		}
		terminal.Await("left with 0")
	}
}
