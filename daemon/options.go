package daemon

// This file finds the paths of a daemon: socket, files, mount and configuration. start.go and cmd/gpuarbd use it.
// lastgood.go has the configuration for a start at which the files have mistakes.

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/gpuarb/gpuarb/internal/config"
	"github.com/gpuarb/gpuarb/ipc"
)

// Paths of the system's daemon.
const (
	systemRuntime = "/run/gpuarb"
	systemMount   = "/gpu"
	socketName    = "gpuarb.sock"
	// NoMount is the value of Options.Mount for a daemon without a filesystem.
	NoMount = "none"
)

// Options has the paths of a daemon. The zero value describes the system's daemon.
type Options struct {
	User   bool   // daemon only for its own user, in $XDG_RUNTIME_DIR/gpuarb
	Socket string // empty: gpuarb.sock in the runtime directory
	Mount  string // empty: /gpu, or gpu in the user's runtime directory; NoMount: no filesystem
	Config string // empty: the user's file if it exists, else /etc/gpuarb/gpuarb.toml
	Sysfs  string // folder in which AMD's and Intel's devices are found; empty: /sys
	Log    *slog.Logger
	// Restart is called after a panic of the daemon's code. It turns this process into a new daemon, which gets the
	// given descriptors. nil descriptors: the daemon was being stopped, and Restart ends the process. It does not
	// return. If Restart is nil, the panic continues.
	Restart func(*ipc.ListenerFDs)
	// Handed stores the descriptors that the last daemon in this process gave to Restart; nil: there was none.
	Handed *ipc.ListenerFDs
}

// ErrNoRuntimeDir says that there is no runtime directory for a user's daemon.
var ErrNoRuntimeDir = errors.New("XDG_RUNTIME_DIR is not set: a daemon of a user lives there; " +
	"log in through a session that sets it, or give --socket PATH and --mount PATH (or --mount none)")

// paths has the absolute paths of one daemon.
type paths struct {
	socket, state, devices, mount, sysfs string
	history                              string // folder of the history
	system                               bool   // the daemon of root, for every user of the machine
	optional                             bool   // the mount was not requested by name, so that its failure is not an error
}

// resolve converts options to paths.
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
	for _, path := range []*string{&p.socket, &p.mount} { // commands that run elsewhere get these paths
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
	p.history = o.historyFolder(p.socket)
	if !o.User && os.Geteuid() != 0 && o.Socket == "" {
		return p, fmt.Errorf("the system's daemon needs root: run `gpuarbd --user` for a daemon of your own")
	}
	return p, nil
}

// historyFolder returns the folder of the history. It is in the folder that systemd names, else in XDG_STATE_HOME of the
// user, else beside the state file.
func (o Options) historyFolder(socket string) string {
	if given, _, _ := strings.Cut(os.Getenv("STATE_DIRECTORY"), ":"); given != "" {
		return filepath.Join(given, "history")
	}
	if state := os.Getenv("XDG_STATE_HOME"); (o.User || os.Geteuid() != 0) && filepath.IsAbs(state) {
		return filepath.Join(state, "gpuarb", "history")
	}
	return socket + ".history"
}

// socketMode returns the mode of the sockets. Every user may connect to the system's daemon: a program that cannot
// connect would run without limits. The rules decide what each user gets.
func (p paths) socketMode() os.FileMode {
	if p.system {
		return 0o666
	}
	return 0o600
}

// ensureDir creates the folder of the socket if it does not exist. The folder of the system's daemon is readable for
// all users, that of a user's daemon only for its owner.
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

// ConfigPath returns the path of the configuration file for config.Load; empty: the system's file. A user's daemon
// reads the user's own file if it exists, else the system's.
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

// load reads the configuration, and returns the absolute path of its file, which commands are told. The path is found
// at each call, because a user may have created or removed the user's own file.
func (o Options) load() (c *config.Config, path string, err error) {
	if path = o.ConfigPath(); path != "" {
		if path, err = filepath.Abs(path); err != nil {
			return nil, "", fmt.Errorf("%s: %w", o.ConfigPath(), err)
		}
	}
	c, err = config.Load(path)
	return c, path, err
}
