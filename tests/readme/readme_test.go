package readme

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file runs the transcripts of pages in a root of their own. pages_test.go checks that every block of a page is run by a test.

// step is one command of the transcript with its output.
type step struct {
	page    string
	line    int
	command string
	want    []string
}

// steps reads the console blocks of a Markdown file.
func steps(t *testing.T, path string) (list []step) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	inside, here := false, false // here: inside a here-document, which ends with a dot
	for i, line := range strings.Split(string(text), "\n") {
		switch {
		case strings.HasPrefix(line, "```"):
			inside = line == "```console"
		case !inside:
		case here:
			list[len(list)-1].command += "\n" + line
			here = line != "."
		case strings.HasPrefix(line, "$ "):
			here = strings.HasSuffix(line, "<<'.'")
			list = append(list, step{page: filepath.Base(path), line: i + 1, command: line[2:]})
		case len(list) > 0:
			list[len(list)-1].want = append(list[len(list)-1].want, line)
		}
	}
	if len(list) < 8 {
		t.Fatalf("%s has only %d commands: is the transcript gone?", path, len(list))
	}
	return list
}

// masked are the columns whose values differ from run to run.
var masked = map[string]bool{"PID": true, "AGE": true, "WAITED": true, "TICKET": true, "UTIL": true, "IDLE": true}

// differing are texts outside of tables that differ from run to run, and their replacements in the comparison.
var differing = []struct {
	what *regexp.Regexp
	show string
}{
	{regexp.MustCompile(`0x[0-9a-f]+`), "0x…"},
	{regexp.MustCompile(`\(reserved\) for \d+ ?m?s\b`), "(reserved)"}, // an age near zero is omitted
	{regexp.MustCompile(`\b(for|after|within) \d+ ?(ms|s)\b`), "$1 …"},
	{regexp.MustCompile(`\[\d+\]`), "[PID]"},
	{regexp.MustCompile(`\bPID \d+\)`), "PID)"},
	{regexp.MustCompile(`\bafter \d+\.\d+ s\b`), "after …"},
	{regexp.MustCompile(`\bwaited \d+(ms|s)\b`), "waited …"},
	{regexp.MustCompile(`\b1\.\d GiB free\b`), "1.… GiB free"}, // an ended program's context counts until the device is read again
	{regexp.MustCompile(`\b\d{4}-\d\d-\d\d\b`), "DATE"},
	{regexp.MustCompile(`\b\d\d:\d\d:\d\d\b`), "TIME"},
	{regexp.MustCompile(`\b\d+s\b`), "…s"},
	{regexp.MustCompile(`(: ffmpeg -nostdin).*…$`), "$1 …"}, // the width of the PID says where a command is cut
}

// normal makes printed lines comparable: it joins runs of blanks, replaces masked
// columns of a table by their names, and replaces differing texts.
func normal(lines []string) string {
	var header []string
	var out []string
	for _, line := range lines {
		for _, d := range differing {
			line = d.what.ReplaceAllString(line, d.show)
		}
		fields := strings.Fields(line)
		if len(fields) > 3 && strings.ToUpper(line) == line && (strings.Contains(line, "STATE") || strings.Contains(line, "TICKET") || strings.Contains(line, "HOLDS")) {
			header = fields
		} else if header != nil && len(fields) >= len(header) {
			for i, name := range header {
				if masked[name] {
					fields[i] = name
				}
			}
		}
		out = append(out, strings.Join(fields, " "))
	}
	return strings.TrimSpace(strings.Join(out, "\n"))
}

// shell is a bash that runs the commands one after another.
type shell struct {
	in  io.Writer
	out *bufio.Scanner
}

const end = "--- end of the command ---"

func (s shell) run(t *testing.T, command string) []string {
	t.Helper()
	if _, err := fmt.Fprintf(s.in, "{ %s\n} 2>&1\nprintf '\\n%%s\\n' '%s'\n", command, end); err != nil {
		t.Fatal(err)
	}
	var lines []string
	more := true
	bounded.Within(t, command, func() {
		for more = s.out.Scan(); more && s.out.Text() != end; more = s.out.Scan() {
			lines = append(lines, s.out.Text())
		}
	})
	if !more {
		t.Fatalf("the shell ended in: %s", command)
	}
	return lines
}

// machine is a script that gives a shell a root of its own: all folders of the host,
// but an empty /run, no /gpu, and a copy of /etc that can be changed safely. It starts a daemon without flags, which ends with the
// shell. Its systemctl sends that daemon SIGHUP on "reload gpuarbd".
const machine = `
	set -e
	root=$1/root
	mkdir "$root"
	mount -t tmpfs none "$root"
	for entry in /*; do
		case $entry in
		/run | /gpu) continue ;;
		/etc) cp -a /etc "$root" && mkdir -p "$root/etc/gpuarb" && rm -f "$root/etc/gpuarb/gpuarb.toml" && continue ;;
		esac
		if [ -L "$entry" ]; then
			cp -P "$entry" "$root$entry"
		elif [ -d "$entry" ]; then
			mkdir "$root$entry"
			mount --rbind "$entry" "$root$entry"
		fi
	done
	mkdir "$root/run"
	exec chroot "$root" bash -c '
		setpriv --pdeathsig KILL gpuarbd >/run/gpuarbd.log 2>&1 &
		daemon=$!
		until grep -qs ready /run/gpuarbd.log; do
			kill -0 $daemon 2>/dev/null || { cat /run/gpuarbd.log; exit 1; }
			read -rt 0.02 <> <(:)
		done
		systemctl() { [ "$*" = "reload gpuarbd" ] && kill -HUP $daemon; }
		export daemon
		export -f systemctl
		bash
		kill $daemon
		wait $daemon
	'`

// TestTranscript runs README.md in the reader's situation: on /run and /gpu, with a
// daemon without flags.
func TestTranscript(t *testing.T) {
	play(t, steps(t, "../../README.md"))
}

// TestTour runs docs/tour.md in the reader's situation.
func TestTour(t *testing.T) {
	play(t, steps(t, "../../docs/tour.md"))
}

// TestCI runs docs/admin/ci.md, with Debian's test runners.
func TestCI(t *testing.T) {
	play(t, steps(t, "../../docs/admin/ci.md"))
}

// play runs commands in one shell.
func play(t *testing.T, list []step) {
	t.Helper()
	m := rig.New(t, rig.Options{Devices: "8G", Stopped: true, NoMount: true})
	build := filepath.Dir(rig.Build(t, "gpuarbd"))
	programs, err := filepath.Abs("../programs")
	if err != nil {
		t.Fatal(err)
	}
	env := append(append(m.Env(), rig.NoProcessor...), "LC_ALL=C.UTF-8", "PATH="+build+":"+programs+":/usr/bin:"+os.Getenv("PATH"))
	cmd := m.Command(env, "unshare", "-m", "bash", "-c", machine, "bash", m.Dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	sh := shell{in, bufio.NewScanner(out)}
	sh.run(t, "set -m") // print job numbers, as at a prompt
	for _, s := range list {
		s.check(t, sh)
	}
	_ = in.Close()
	if err := rig.Wait(t, rig.Patience, cmd); err != nil {
		t.Errorf("the daemon's end: %v", err)
	}
}

// check runs one command. A command that only reads is repeated until its output is as in the
// page, because a reader takes a moment to type and the test does not.
func (s step) check(t *testing.T, sh shell) {
	t.Helper()
	looks := false
	for _, word := range []string{"cat ", "grep ", "gpuarb devices", "gpuarb jobs", "gpuarb top", "gpuarb events", "curl "} {
		looks = looks || strings.HasPrefix(s.command, word)
	}
	want := normal(s.want)
	for deadline := time.Now().Add(rig.Patience / 4); ; {
		got := normal(sh.run(t, s.command))
		if got == want {
			return
		}
		if !looks || time.Now().After(deadline) {
			t.Errorf("%s:%d: %s\nprints\n%s\nnot\n%s", s.page, s.line, s.command, got, want)
			return
		}
	}
}
