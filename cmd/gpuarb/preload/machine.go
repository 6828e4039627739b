package preload

// This file owns Machine: it runs programs on the machine, and checks that the library can be
// trusted.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Machine is a system with programs: the running system with Root "/", or another system below a
// folder, as for systemctl --root.
type Machine struct {
	Root    string
	Timeout time.Duration // time limit of each program that is started as a test
}

// Here reports whether the machine is the running system.
func (m Machine) Here() bool { return m.Root == "/" }

func (m Machine) path(name string) string { return filepath.Join(m.Root, name) }

// checkTrusted returns an error if programs of all users should not load the library. A user who
// can write the file, or replace a folder above it, would control all programs. A user who cannot
// read it would get a message from each program.
func (m Machine) checkTrusted(library string) error {
	if !filepath.IsAbs(library) || strings.ContainsAny(library, " :#\"\\$%@{}") {
		return fmt.Errorf("%s: the library has to lie under an absolute path without blanks and signs; install gpuarb (make install)", library)
	}
	for path := library; ; path = filepath.Dir(path) {
		info, err := os.Stat(m.path(path))
		if err != nil {
			return err
		}
		owner := info.Sys().(*syscall.Stat_t).Uid
		needed := fs.FileMode(0o004)
		if info.IsDir() {
			needed = 0o001
		}
		switch {
		case owner != 0:
			return fmt.Errorf("%s belongs to user %d, who could change what runs in everybody's programs; install gpuarb (make install)", path, owner)
		case info.Mode().Perm()&0o022 != 0:
			return fmt.Errorf("%s can be written by others than root (mode %04o), who could change what runs in everybody's programs; install gpuarb (make install)",
				path, info.Mode().Perm())
		case info.Mode().Perm()&needed == 0:
			return fmt.Errorf("%s is closed to other users (mode %04o), whose programs could not load the library", path, info.Mode().Perm())
		}
		if path == "/" {
			return nil
		}
	}
}

// command returns a program that will run on the machine.
func (m Machine) command(ctx context.Context, env []string, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append([]string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}, env...)
	cmd.WaitDelay = time.Second
	if !m.Here() {
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: m.Root}
		cmd.Path, cmd.Err, cmd.Dir = m.programPath(name), nil, "/"
	}
	return cmd
}

// programPath returns the path of a program on the machine.
func (m Machine) programPath(name string) string {
	for _, dir := range []string{"/usr/bin", "/bin", "/usr/sbin", "/sbin"} {
		if _, err := os.Stat(m.path(filepath.Join(dir, name))); err == nil && !filepath.IsAbs(name) {
			return filepath.Join(dir, name)
		}
	}
	return name
}

// output runs a program and returns its output. Text on stderr is an error.
func (m Machine) output(env []string, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), m.Timeout)
	defer cancel()
	cmd := m.command(ctx, env, name, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	said := strings.TrimSpace(stderr.String())
	switch {
	case ctx.Err() != nil:
		return "", fmt.Errorf("%s has not ended after %v", name, m.Timeout)
	case err != nil && said != "":
		return "", fmt.Errorf("%s: %s", name, said)
	case err != nil:
		return "", fmt.Errorf("%s: %w", name, err)
	case said != "":
		return string(out), fmt.Errorf("%s said: %s", name, said)
	}
	return string(out), nil
}

// checkLoads starts a small program twice. The first time the loader only lists what it loads; the
// second time the program runs. The loader complains about a library that it cannot load, and
// continues without it.
func (m Machine) checkLoads(library string, env ...string) error {
	listed, err := m.output(append(env, "LD_TRACE_LOADED_OBJECTS=1"), "true")
	if err == nil && !strings.Contains(listed, library) {
		err = errors.New("the loader passes it over")
	}
	if err == nil {
		_, err = m.output(env, "true")
	}
	if err != nil {
		return fmt.Errorf("%s does not load into a small program: %w", library, err)
	}
	return nil
}
