package gpufs

import (
	"context"
	"strings"
	"syscall"
	"testing"
)

// This file has the fuzz target of writes to a limit. control_test.go writes through a mount.

// FuzzWrite: any bytes written to a limit's file, at any offset, give one setting with the text without white space
// around it, or an error. They never give two settings or a panic.
func FuzzWrite(f *testing.F) {
	for _, seed := range []string{"1G\n", "max", "25%", "", "\n", " 5 \n 6", strings.Repeat("9", 5000), "1\x002", "\xff\xfe", "-1", "1e9"} {
		f.Add([]byte(seed), int64(0), true)
		f.Add([]byte(seed), int64(-1), false)
	}
	f.Fuzz(func(t *testing.T, text []byte, offset int64, taken bool) {
		var got []string
		h := &handle{by: opener{uid: 1000}, file: &fileNode{set: func(_ context.Context, value string, by opener) error {
			if got = append(got, value); by.uid != 1000 {
				t.Errorf("set by user %d", by.uid)
			}
			if !taken {
				return syscall.EPERM
			}
			return nil
		}}}
		n, errno := h.Write(context.Background(), text, offset)
		value := strings.TrimSpace(string(text))
		switch {
		case len(text) > maxCommand || value == "":
			if len(got) > 0 || errno == 0 {
				t.Fatalf("%q is set as %q, %v", text, got, errno)
			}
		case len(got) != 1 || got[0] != value:
			t.Fatalf("%q is set as %q", text, got)
		case taken && (errno != 0 || int(n) != len(text)), !taken && errno != syscall.EPERM:
			t.Fatalf("%q: %d bytes, %v", text, n, errno)
		}
	})
}
