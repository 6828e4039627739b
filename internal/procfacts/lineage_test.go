package procfacts

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A process counts as having a library mapped, also after an upgrade has deleted the file. facts_test.go tests
// whether a process has its lease page mapped.

// TestHasMappedAfterAnUpgrade checks that a mapped file is found by its name, also after the file was deleted.
func TestHasMappedAfterAnUpgrade(t *testing.T) {
	path := filepath.Join(t.TempDir(), "libmapped.so")
	if err := os.WriteFile(path, make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	mem, err := unix.Mmap(int(file.Fd()), 0, 4096, unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	r := NewReader()
	for _, when := range []string{"there", "deleted"} {
		if mapped, known := r.HasMapped(os.Getpid(), "libmapped.so"); !mapped || !known {
			t.Errorf("%s: mapped %t, known %t", when, mapped, known)
		}
		_ = os.Remove(path)
	}
}
