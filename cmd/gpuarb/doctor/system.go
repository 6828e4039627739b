package doctor

// This file checks /dev/fuse, the mount, and the limit on descriptors. examine.go calls it.

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func (d *Doctor) checkFuse() {
	fuse := d.path("/dev/fuse")
	info, err := os.Stat(fuse)
	switch {
	case err != nil:
		d.add("fuse", Note, "modprobe fuse, or give the container the device (--device /dev/fuse); or run gpuarbd --mount none: the commands work without /gpu", "no /dev/fuse: %v", causeOf(err))
	case info.Mode()&os.ModeCharDevice == 0:
		d.add("fuse", Note, "", "/dev/fuse is no device")
	case unix.Access(fuse, unix.R_OK|unix.W_OK) != nil:
		d.add("fuse", Note, "the system's daemon does not need it; one of your own does: ask for access, or use --mount none",
			"/dev/fuse is not yours to open")
	default:
		d.add("fuse", Fine, "", "/dev/fuse can be opened")
	}
}

// causeOf returns the system error in err without the path, which the message has already.
func causeOf(err error) error {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}

func (d *Doctor) checkMounts() {
	mounts, err := d.processes().Mounts()
	if err != nil {
		d.add("mount", Unknown, "", "the table of mounts cannot be read: %v", causeOf(err))
		return
	}
	some := false
	for _, m := range mounts {
		if strings.HasPrefix(m.Type, "fuse") && (strings.Contains(m.Type, "gpuarb") || strings.Contains(m.Source, "gpuarb")) {
			some = true
			d.checkMount(m.Point)
		}
	}
	if !some {
		d.add("mount", Note, "", "nothing of gpuarb is mounted here; the commands work without")
	}
}

func (d *Doctor) checkMount(point string) {
	text, err := readWithTimeout(d.path(filepath.Join(point, "version")), d.Timeout)
	served := strings.TrimSpace(string(text))
	switch {
	case errors.Is(err, unix.ENOTCONN):
		d.add("mount", Wrong, "start gpuarbd, which mounts again, or take it away with umount "+point,
			"%s was left behind by a daemon that is gone", point)
	case errors.Is(err, unix.EACCES):
		d.add("mount", Note, "", "%s belongs to another user's daemon", point)
	case err != nil:
		d.add("mount", Wrong, "restart gpuarbd", "%s/version cannot be read: %v", point, causeOf(err))
	case d.state != nil && served != d.state.Version:
		d.add("mount", Wrong, "restart gpuarbd, or take the mount away with umount "+point,
			"%s is served by version %q, the daemon is %q", point, served, d.state.Version)
	default:
		d.add("mount", Fine, "", "%s is alive, version %s", point, served)
	}
}

// readWithTimeout reads a file whose read may hang. A goroutine that hangs is abandoned, because
// the program ends soon.
func readWithTimeout(path string, timeout time.Duration) ([]byte, error) {
	type result struct {
		text []byte
		err  error
	}
	done := make(chan result, 1)
	go func() {
		text, err := os.ReadFile(path)
		done <- result{text, err}
	}()
	select {
	case r := <-done:
		return r.text, r.err
	case <-time.After(timeout):
		return nil, fmt.Errorf("no answer within %v", timeout)
	}
}

// fewDescriptors is a limit at which a CUDA program may run out of descriptors. The driver uses
// about forty, and the library one or two.
const fewDescriptors = 256

func (d *Doctor) checkLimits() {
	var descriptors unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &descriptors); err != nil {
		d.add("limits", Unknown, "", "the limit on descriptors cannot be read: %v", err)
		return
	}
	if descriptors.Cur < fewDescriptors {
		d.add("limits", Note, "ulimit -n 1024", "only %d descriptors for each process of yours", descriptors.Cur)
		return
	}
	d.add("limits", Fine, "", "%d descriptors for each process of yours", descriptors.Cur)
}
