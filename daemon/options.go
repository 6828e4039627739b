package daemon

// This file says where a daemon lives: its socket, its files, its mount and its configuration. lastgood.go has the configuration for a start
// at which the files have mistakes.

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/gpuarb/gpuarb/internal/config"
	"github.com/gpuarb/gpuarb/ipc"
)

// The places of a system daemon.
const (
	systemRuntime = "/run/gpuarb"
	systemMount   = "/gpu"
	socketName    = "gpuarb.sock"
	// NoMount as Options.Mount: serve the socket alone.
	NoMount = "none"
)

// Options says where the daemon lives. The zero value is the system's daemon.
type Options struct {
	User   bool   // a daemon for its own user alone, in $XDG_RUNTIME_DIR/gpuarb
	Socket string // empty: gpuarb.sock in the runtime directory
	Mount  string // empty: /gpu, or gpu in the user's runtime directory; NoMount
	Config string // empty: the user's where there is one, else /etc/gpuarb/gpuarb.toml
	Sysfs  string // empty: /sys; where AMD's and Intel's devices are looked for
	Log    *slog.Logger
	// Restart is called after a broken invariant. It makes this process a new daemon, with the descriptors of the old one that it is given.
	// If these are nil the daemon was being stopped, and Restart ends the process. It does not return. Without Restart (nil) a broken
	// invariant is a panic.
	Restart func(*ipc.ListenerFDs)
	// Handed: descriptors of the daemon that ran in this process before; nil: there was none. Restart was given them.
	Handed *ipc.ListenerFDs
}

// ErrNoRuntimeDir says that a user's daemon has nowhere to live.
var ErrNoRuntimeDir = errors.New("XDG_RUNTIME_DIR is not set: a daemon of a user lives there; " +
	"log in through a session that sets it, or give --socket PATH and --mount PATH (or --mount none)")

// paths is where one daemon lives, every path absolute.
type paths struct {
	socket, state, devices, mount, sysfs string
	system                               bool // root's, for every user of the machine
	optional                             bool // the mount: nobody asked for it by name
}

// resolve turns options into paths.
func (o Options) resolve() (paths, error) {
	p := paths{mount: o.Mount, sysfs: o.Sysfs, system: !o.User && os.Geteuid() == 0}
	runtime := systemRuntime
	if o.User {
		dir := os.Getenv("XDG_RUNTIME_DIR")
		if dir == "" && (o.Socket == "" || o.Mount == "") {
			return p, ErrNoRuntimeDir
		}
		runtime = filepath.Join(dir, "gpuarb")
	}
	p.socket = cmp.Or(o.Socket, filepath.Join(runtime, socketName))
	if p.mount == "" {
		p.mount = systemMount
		if o.User {
			p.mount, p.optional = filepath.Join(runtime, "gpu"), true
		}
	}
	if p.mount == NoMount {
		p.mount = ""
	}
	for _, path := range []*string{&p.socket, &p.mount} { // commands are told them, wherever they run
		if *path == "" {
			continue
		}
		abs, err := filepath.Abs(*path)
		if err != nil {
			return p, fmt.Errorf("%s: %w", *path, err)
		}
		*path = abs
	}
	p.state, p.devices = p.socket+".state", p.socket+".devices"
	if !o.User && os.Geteuid() != 0 && o.Socket == "" {
		return p, fmt.Errorf("the system's daemon needs root: run `gpuarbd --user` for a daemon of your own")
	}
	return p, nil
}

// socketMode is that of the sockets: the system's are for everybody. Whoever is kept out runs without a limit; the rules
// decide what he gets.
func (p paths) socketMode() os.FileMode {
	if p.system {
		return 0o666
	}
	return 0o600
}

// ensureDir makes the folder of the socket when it is absent: open to look into
// for the system's daemon, its owner's alone for a user's.
func (p paths) ensureDir() error {
	mode := os.FileMode(0o700)
	if p.system {
		mode = 0o755
	}
	dir := filepath.Dir(p.socket)
	if err := os.MkdirAll(dir, mode); err != nil {
		return fmt.Errorf("cannot make the runtime directory %s: %w", dir, err)
	}
	return nil
}

// ConfigPath is the configuration file that these options lead to, for
// config.Load: empty for the system's. A user's daemon reads the user's own file
// where there is one, else the system's.
func (o Options) ConfigPath() string {
	if o.Config != "" || !o.User {
		return o.Config
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return ""
	}
	path := filepath.Join(dir, "gpuarb", "gpuarb.toml")
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	return path
}

// load reads the configuration, and tells from which file, as an absolute path (commands are told it): a user's own may have come or gone.
func (o Options) load() (c *config.Config, path string, err error) {
	if path = o.ConfigPath(); path != "" {
		if path, err = filepath.Abs(path); err != nil {
			return nil, "", fmt.Errorf("%s: %w", o.ConfigPath(), err)
		}
	}
	c, err = config.Load(path)
	return c, path, err
}
