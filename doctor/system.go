package doctor

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
		d.found("fuse", Note, "modprobe fuse, or give the container the device (--device /dev/fuse); or run gpuarbd --mount none: the commands work without /gpu", "no /dev/fuse: %v", reasonOf(err))
	case info.Mode()&os.ModeCharDevice == 0:
		d.found("fuse", Note, "", "/dev/fuse is no device")
	case unix.Access(fuse, unix.R_OK|unix.W_OK) != nil:
		d.found("fuse", Note, "the system's daemon does not need it; one of your own does: ask for access, or use --mount none",
			"/dev/fuse is not yours to open")
	default:
		d.found("fuse", Fine, "", "/dev/fuse can be opened")
	}
}

// reasonOf is the system's word alone; the path is in the message already.
func reasonOf(err error) error {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}

func (d *Doctor) checkMounts() {
	mounts, err := d.processes().Mounts()
	if err != nil {
		d.found("mount", Unknown, "", "the table of mounts cannot be read: %v", reasonOf(err))
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
		d.found("mount", Note, "", "nothing of gpuarb is mounted here; the commands work without")
	}
}

func (d *Doctor) checkMount(point string) {
	text, err := readInTime(d.path(filepath.Join(point, "version")), d.Patience)
	served := strings.TrimSpace(string(text))
	switch {
	case errors.Is(err, unix.ENOTCONN):
		d.found("mount", Wrong, "start gpuarbd, which mounts again, or take it away with umount "+point,
			"%s was left behind by a daemon that is gone", point)
	case errors.Is(err, unix.EACCES):
		d.found("mount", Note, "", "%s belongs to another user's daemon", point)
	case err != nil:
		d.found("mount", Wrong, "restart gpuarbd", "%s/version cannot be read: %v", point, reasonOf(err))
	case d.state != nil && served != d.state.Version:
		d.found("mount", Wrong, "restart gpuarbd, or take the mount away with umount "+point,
			"%s is served by version %q, the daemon is %q", point, served, d.state.Version)
	default:
		d.found("mount", Fine, "", "%s is alive, version %s", point, served)
	}
}

// readInTime reads a file that may hang. The reader of one that does is left behind;
// the program ends soon anyway.
func readInTime(path string, patience time.Duration) ([]byte, error) {
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
	case <-time.After(patience):
		return nil, fmt.Errorf("no answer within %v", patience)
	}
}

// fewDescriptors is a limit under which a CUDA program, with some forty descriptors
// of the driver's and one or two of the shim's, may run out.
const fewDescriptors = 256

func (d *Doctor) checkLimits() {
	var descriptors unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &descriptors); err != nil {
		d.found("limits", Unknown, "", "the limit on descriptors cannot be read: %v", err)
		return
	}
	if descriptors.Cur < fewDescriptors {
		d.found("limits", Note, "ulimit -n 1024", "only %d descriptors for each process of yours", descriptors.Cur)
		return
	}
	d.found("limits", Fine, "", "%d descriptors for each process of yours", descriptors.Cur)
}
