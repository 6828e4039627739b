package ipc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// This file makes and removes a socket's second path (ListenOptions.SecondPath); listen.go calls it. One of the two
// paths lies in a folder of its own, which is made visible in containers. The other folder also has the daemon's own
// files. The second path is a hard link: it works in a container that does not have the first path, and it needs no
// second listener.

// SecondPath returns a socket's second path: client/NAME in its folder, or NAME in the parent folder if the folder's
// name is client. It returns "" if the path is relative or abstract.
func SecondPath(path string) string {
	dir, name := filepath.Split(path)
	switch dir = filepath.Clean(dir); {
	case !strings.HasPrefix(path, "/"):
		return ""
	case filepath.Base(dir) == clientFolder:
		return filepath.Join(filepath.Dir(dir), name)
	}
	return filepath.Join(dir, clientFolder, name)
}

// clientFolder is the name of the folder that containers see.
const clientFolder = "client"

// linkSecondPath makes the socket's second path if it is missing. The caller holds l.mu or is the only user of l.
func (l *Listener) linkSecondPath() {
	if l.secondPath == "" || l.isClosed() || l.inode == 0 || inode(l.path) != l.inode {
		return
	}
	err := linkSocket(l.path, l.secondPath)
	if err != nil && l.secondPathErr == nil && l.opts.SecondPathFailed != nil {
		l.opts.SecondPathFailed(err)
	}
	l.secondPathErr = err
}

// linkSocket makes the hard link `to` for the socket at from. If a dead daemon's socket or a symbolic link is there,
// a rename replaces it, so that a client always finds either the old socket or the new one.
func linkSocket(from, to string) error {
	if sameFile(from, to) {
		return nil
	}
	if err := os.Mkdir(filepath.Dir(to), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if st, err := os.Lstat(to); err == nil && st.Mode().Type()&(os.ModeSocket|os.ModeSymlink) == 0 {
		return fmt.Errorf("%s exists and is no socket; it is left alone", to)
	}
	// The new link lies in the folder that containers do not see until it has its name.
	fresh := filepath.Join(parentOfBoth(from, to), "."+filepath.Base(to)+".new")
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Link(from, fresh); err != nil {
		return err
	}
	return os.Rename(fresh, to)
}

// parentOfBoth returns the folder of the path that lies outside the clients' folder.
func parentOfBoth(from, to string) string {
	a, b := filepath.Dir(from), filepath.Dir(to)
	if len(a) < len(b) {
		return a
	}
	return b
}

// sameFile reports whether two paths lead to one file.
func sameFile(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}

// unlinkSecondPath removes the second path while the listener closes, if it is this listener's socket. Its folder
// stays, because containers have it mounted. The caller holds l.mu.
func (l *Listener) unlinkSecondPath() {
	if l.secondPath != "" && l.lock != nil && l.inode != 0 && inode(l.secondPath) == l.inode {
		_ = os.Remove(l.secondPath) // if that fails, clients find a socket on which no process listens
	}
}
