package ipc

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// This file checks that ChmodSocket changes only the mode of a socket. listener_test.go checks the mode of a new
// socket.

// TestChmodSocket: ChmodSocket does not follow a symbolic link that stands in the socket's place.
func TestChmodSocket(t *testing.T) {
	dir := t.TempDir()
	victim, link := filepath.Join(dir, "victim"), filepath.Join(dir, "link")
	if err := os.WriteFile(victim, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(victim, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{link, victim} {
		if err := ChmodSocket(path, 0o666); err == nil || !strings.Contains(err.Error(), "no socket any more") {
			t.Errorf("%s: %v", path, err)
		}
	}
	if info, err := os.Stat(victim); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}
