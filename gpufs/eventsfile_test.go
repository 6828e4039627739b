package gpufs

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/internal/events"
)

// This file checks the file events with a history that drops its oldest lines: readers, tail and cp get each kept
// line once, and a line that counts the lost bytes. tests/events reads the file of a daemon.

// mountHistory mounts a history with space for twenty lines of 200 bytes. The returned function writes the next n
// lines.
func mountHistory(t *testing.T) (path string, write func(n int)) {
	t.Helper()
	history := events.NewLog(4000)
	s, err := mountHere(filepath.Join(t.TempDir(), "gpu"), &fakeView{}, Options{History: history})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Unmount(); err != nil {
			t.Error(err)
		}
	})
	written := 0
	return filepath.Join(s.Path(), "events"), func(n int) {
		for range n {
			e := events.Event{Time: time.Now(), Kind: events.Over, Text: fmt.Sprintf("line %d", written)}
			history.Add(e.Time, 1, append(bytes.TrimSuffix(e.Line(), []byte("\n")), strings.Repeat(" ", 40)+"\n"...))
			written++
		}
	}
}

// texts returns the texts of lines.
func texts(t *testing.T, lines string) (all []string) {
	t.Helper()
	for line := range strings.Lines(lines) {
		e, err := events.Parse([]byte(line))
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		text := e.Text
		if e.Kind == events.Lost {
			text = fmt.Sprint("lost ", e.LostBytes)
		}
		all = append(all, text)
	}
	return all
}

func wantTexts(t *testing.T, what, lines string, want ...string) {
	t.Helper()
	if got := strings.Join(texts(t, lines), ", "); got != strings.Join(want, ", ") {
		t.Errorf("%s: %s\nwant %s", what, got, strings.Join(want, ", "))
	}
}

// numberedTexts returns the texts of the lines with these numbers.
func numberedTexts(from, to int) (all []string) {
	for i := from; i < to; i++ {
		all = append(all, fmt.Sprint("line ", i))
	}
	return all
}

// TestEventsFileGap: a sequential reader gets a line that reports the lost bytes in place of a gap. The file's size
// counts all written bytes.
func TestEventsFileGap(t *testing.T) {
	path, write := mountHistory(t)
	write(10)
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	first := make([]byte, 1000)
	if _, err := io.ReadFull(f, first); err != nil {
		t.Fatal(err)
	}
	wantTexts(t, "the beginning", string(first), numberedTexts(0, 5)...)
	write(40) // 30 to 49 are kept
	if info, err := os.Stat(path); err != nil || info.Size() != 50*200 {
		t.Fatalf("%v, %v", info, err)
	}
	rest, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	wantTexts(t, "a slow reader goes on", string(rest), append([]string{"lost 5000"}, numberedTexts(30, 50)...)...)
	all := append([]string{"lost 6000"}, numberedTexts(30, 50)...)
	wantTexts(t, "cat", output(t, "cat", path), all...)
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	again, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	wantTexts(t, "from the beginning again", string(again), all...)
	write(1)
	more, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	wantTexts(t, "what has come", string(more), "line 50")
	small := make([]byte, 7) // pieces that end inside lines
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	var pieces bytes.Buffer
	if _, err := io.CopyBuffer(struct{ io.Writer }{&pieces}, struct{ io.Reader }{f}, small); err != nil {
		t.Fatal(err)
	}
	wantTexts(t, "in pieces", pieces.String(), append([]string{"lost 6200"}, numberedTexts(31, 51)...)...)
}

// TestEventsFileTail: tail finds the last lines if most are lost, and prints the kept lines if they are fewer than it
// wants.
func TestEventsFileTail(t *testing.T) {
	path, write := mountHistory(t)
	write(200)
	wantTexts(t, "tail -n 3", output(t, "tail", "-n", "3", path), numberedTexts(197, 200)...)
	wantTexts(t, "tail -c 400", output(t, "tail", "-c", "400", path), numberedTexts(198, 200)...)
	wantTexts(t, "tail -n 1000", output(t, "tail", "-n", "1000", path), append([]string{"lost 36000"}, numberedTexts(180, 200)...)...)
	copied := filepath.Join(t.TempDir(), "copy")
	output(t, "cp", path, copied)
	text, err := os.ReadFile(copied)
	if err != nil {
		t.Fatal(err)
	}
	wantTexts(t, "cp", string(text), append([]string{"lost 36000"}, numberedTexts(180, 200)...)...)
	if got := output(t, "grep", "-c", "line 19", path); got != "10\n" {
		t.Errorf("grep counts %s", got)
	}
}

// TestEventsFileIsReadOnly: no user can change the file, including root.
func TestEventsFileIsReadOnly(t *testing.T) {
	path, write := mountHistory(t)
	write(1)
	if _, err := os.OpenFile(path, os.O_WRONLY, 0); err == nil {
		t.Error("it was opened to be written")
	}
	for what, err := range map[string]error{"truncate": os.Truncate(path, 0), "chmod": os.Chmod(path, 0o666), "unlink": unix.Unlink(path)} {
		if err == nil {
			t.Errorf("%s: it was done", what)
		}
	}
}
