package statefile

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// withLease adds a session with a lease to a file.
func withLease(t *testing.T, f *File, token byte) (lease int) {
	t.Helper()
	session, s, err := f.Sessions.New()
	if err != nil {
		t.Fatal(err)
	}
	s.Token[0] = token
	f.Sessions.Commit(session)
	lease, l, err := f.Leases.New()
	if err != nil {
		t.Fatal(err)
	}
	l.Session, l.OpenedAt = uint32(session), int64(token)
	f.Leases.Commit(lease)
	return lease
}

func addThread(t *testing.T, f *File, lease int, openedAt int64, thread uint32) {
	t.Helper()
	i, row, err := f.Threads.New()
	if err != nil {
		t.Fatal(err)
	}
	row.Lease, row.OpenedAt, row.Maker = uint32(lease), openedAt, Maker{Thread: thread, Contexts: 1}
	f.Threads.Commit(i)
}

func threadsOf(f *File) (threads []uint32) {
	f.Threads.Each(func(_ int, row *Thread) { threads = append(threads, row.Maker.Thread) })
	return threads
}

// TestAnnexOutlivesTheMapping: as long as what it belongs to is there.
func TestAnnexOutlivesTheMapping(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	f, _ := open(t, path)
	lease := withLease(t, f, 1)
	addThread(t, f, lease, 1, 17)
	addThread(t, f, lease, 2, 18)   // of a lease that had the index before
	addThread(t, f, lease+1, 1, 19) // of none

	g, _ := open(t, path)
	if g.Volatile() != nil {
		t.Error(g.Volatile())
	}
	if got := threadsOf(g); len(got) != 1 || got[0] != 17 {
		t.Errorf("threads %v, want 17 alone", got)
	}
}

// TestAnnexIsBegunAnew checks that an annex is empty after its state file was lost, and that a file in its place which is not a valid
// annex is set aside, not emptied.
func TestAnnexIsBegunAnew(t *testing.T) {
	write := func(text string, at int64) func(path string) error {
		return func(path string) error {
			file, err := os.OpenFile(path+threadAnnex.suffix, os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			defer file.Close()
			_, err = file.WriteAt([]byte(text), at)
			return err
		}
	}
	size := int64(threadAnnex.size())
	for name, c := range map[string]struct {
		harm  func(path string) error
		aside string // suffix of the name that it is set aside under; empty: it is not set aside, but emptied
	}{
		"the state file is gone": {os.Remove, ""},
		"cut":                    {func(path string) error { return os.Truncate(path+threadAnnex.suffix, 5000) }, ".damaged"},
		"longer":                 {func(path string) error { return os.Truncate(path+threadAnnex.suffix, size+1) }, ".damaged"},
		"a letter":               {func(path string) error { return os.WriteFile(path+threadAnnex.suffix, []byte("Dear daemon,"), 0o600) }, ".damaged"},
		"a later version":        {write("\x09", 8), ".v9"},
		"a later version, and longer": {func(path string) error {
			return errors.Join(write("\x09", 8)(path), os.Truncate(path+threadAnnex.suffix, 2*size))
		}, ".v9"},
		"rows of another size": {write("\x01", 12), ".damaged"},
		"of another boot":      {write("another boot", 16), ""},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state")
			f, _ := open(t, path)
			lease := withLease(t, f, 1)
			addThread(t, f, lease, 1, 17)
			if err := c.harm(path); err != nil {
				t.Fatal(err)
			}
			was, err := os.Stat(path + threadAnnex.suffix)
			if err != nil {
				t.Fatal(err)
			}
			g, _ := open(t, path)
			if want := []string{path + threadAnnex.suffix + c.aside}; c.aside == "" && len(g.Aside()) > 0 || c.aside != "" && !slices.Equal(g.Aside(), want) {
				t.Fatalf("set aside as %q, want %q", g.Aside(), c.aside)
			}
			if c.aside != "" {
				if is, err := os.Stat(g.Aside()[0]); err != nil || !os.SameFile(was, is) || is.Size() != was.Size() {
					t.Errorf("what was set aside is not what was there: %v", err)
				}
			}
			withLease(t, g, 1)
			if got := threadsOf(g); len(got) != 0 || g.Volatile() != nil {
				t.Errorf("threads %v, volatile %v", got, g.Volatile())
			}
		})
	}
}

// TestNoAnnex: where there can be none, the daemon works, and says that not all is kept.
func TestNoAnnex(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	if err := os.Mkdir(path+threadAnnex.suffix, 0o700); err != nil {
		t.Fatal(err)
	}
	f, _ := open(t, path)
	lease := withLease(t, f, 1)
	addThread(t, f, lease, 1, 17)
	if len(threadsOf(f)) != 1 || f.Volatile() == nil {
		t.Errorf("threads %v, volatile %v", threadsOf(f), f.Volatile())
	}
}
