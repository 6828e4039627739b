package statefile

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// A state file that this daemon cannot use, or must not trust, is renamed and kept, and the daemon starts with an
// empty one. file_test.go tests files that are used.

// saved returns the bytes of a state file with one session.
func saved(t *testing.T) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "state")
	f, _ := open(t, path)
	i, s, err := f.Sessions.New()
	if err != nil {
		t.Fatal(err)
	}
	s.PID = 7
	f.Sessions.Commit(i)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestAside checks that an unreadable file is set aside undestroyed, and that the daemon starts without it.
func TestAside(t *testing.T) {
	good := saved(t)
	with := func(at int, bytes ...byte) []byte {
		text := slices.Clone(good)
		copy(text[at:], bytes)
		return text
	}
	for name, c := range map[string]struct {
		content []byte
		aside   string // its new name; empty: the file is only emptied
	}{
		"a later version":          {with(8, 5), "v5"},
		"an earlier version":       {with(8, 2), "v2"},
		"a later version, shorter": {with(8, 200)[:9000], "v200"},
		"cut in its records":       {good[:len(good)/2], "damaged"},
		"cut in its header":        {good[:40], "damaged"},
		"longer":                   {append(slices.Clone(good), 0), "damaged"},
		"records of another size":  {with(20, 1, 0, 0, 0), "damaged"},
		"a letter":                 {[]byte("Dear daemon,"), "damaged"},
		"empty":                    {nil, ""},
		"zeros":                    {make([]byte, len(good)), ""},
		"of another boot":          {with(40, 1, 2, 3), ""},
		"of another boot, later":   {slices.Concat(with(8, 9)[:40], []byte{1, 2, 3}, good[43:]), ""},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state")
			if err := os.WriteFile(path, c.content, 0o600); err != nil {
				t.Fatal(err)
			}
			f, fresh := open(t, path)
			if !fresh {
				t.Error("it was taken up")
			}
			f.Sessions.Each(func(int, *Session) { t.Error("it has a session") })
			want := ""
			if c.aside != "" {
				want = path + "." + c.aside
			}
			if f.Aside() != want {
				t.Fatalf("set aside as %q, want %q", f.Aside(), want)
			}
			if want == "" {
				return
			}
			if kept, err := os.ReadFile(want); err != nil || !slices.Equal(kept, c.content) {
				t.Errorf("what was set aside is not what was there: %v", err)
			}
			if _, fresh := open(t, path); fresh {
				t.Error("what was begun anew is not taken up")
			}
		})
	}
}

// TestForeign checks that a symbolic link, and a file that other users own or can write, are neither read nor written.
func TestForeign(t *testing.T) {
	good := saved(t)
	for name, put := range map[string]func(path string) error{
		"open to others": func(path string) error {
			if err := os.WriteFile(path, good, 0o600); err != nil {
				return err
			}
			return os.Chmod(path, 0o620)
		},
		"a link": func(path string) error {
			if err := os.WriteFile(path+".target", good, 0o600); err != nil {
				return err
			}
			return os.Symlink(path+".target", path)
		},
		"another user's": func(path string) error {
			if err := os.WriteFile(path, good, 0o600); err != nil || os.Geteuid() != 0 {
				return err
			}
			return os.Chown(path, 65534, 65534)
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state")
			if err := put(path); err != nil {
				t.Fatal(err)
			}
			f, fresh := open(t, path)
			if !fresh && (name != "another user's" || os.Geteuid() == 0) {
				t.Error("it was taken up")
			}
			if fresh && f.Aside() != path+".foreign" {
				t.Errorf("set aside as %q", f.Aside())
			}
			if text, err := os.ReadFile(path + ".target"); err == nil && !slices.Equal(text, good) {
				t.Error("what the link leads to was written to")
			}
		})
	}
	dir := filepath.Join(t.TempDir(), "state")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Open(dir); err == nil {
		t.Error("a folder was taken for a file")
	}
}

// TestAsideIsBounded checks that of each kind only the last file that was set aside is kept.
func TestAsideIsBounded(t *testing.T) {
	good := saved(t)
	path := filepath.Join(t.TempDir(), "state")
	for n := range 4 {
		binary.LittleEndian.PutUint32(good[8:], uint32(5+n%2))
		good[headerSize] = byte(n)
		if err := os.WriteFile(path, good, 0o600); err != nil {
			t.Fatal(err)
		}
		f, _ := open(t, path)
		if kept, err := os.ReadFile(f.Aside()); err != nil || kept[headerSize] != byte(n) {
			t.Errorf("round %d: %s: %v", n, f.Aside(), err)
		}
	}
	if found, err := filepath.Glob(path + ".v*"); err != nil || len(found) != 2 {
		t.Errorf("kept are %q, %v; want one of each version", found, err)
	}
}
