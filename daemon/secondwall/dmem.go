package secondwall

// This file reads and writes the files of the kernel's cgroup controller dmem, and opens the folders of cgroups.
//
// dmem.capacity, in the root folder, lists the regions of device memory. A region is named by its driver and the PCI address
// of the device: "drm/0000:03:00.0/vram0 8589934592". dmem.max, in each other folder whose parent enables the controller,
// has a line for each region with the limit or "max". A write of such a line changes one region.

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// NoLimit is the value of a limit that does not exist.
const NoLimit = math.MaxUint64

const (
	capacityFile = "dmem.capacity"
	maxFile      = "dmem.max"
	maxFileSize  = 64 << 10 // bytes; a file that is not shorter is an error
)

// errAbsent says that a cgroup has no folder in any hierarchy of cgroup v2.
var errAbsent = errors.New("no hierarchy of cgroup v2 has this cgroup")

// folder is the open folder of a cgroup. Its inode number tells it from a folder that is made at the same path later.
type folder struct {
	fd    int
	dir   string
	inode uint64
}

func (f *folder) close() { _ = unix.Close(f.fd) }

// openFolder opens the folder of a cgroup below the first root that has this folder. It returns errAbsent if no root has it. A path
// that has symbolic links, or crosses into another mount, is an error: the kernel's cgroup filesystem has no such paths.
func openFolder(roots []string, path string) (*folder, error) {
	if len(roots) == 0 {
		return nil, errors.New("no hierarchy of cgroup v2 is mounted")
	}
	for _, root := range roots {
		f, err := openBelow(root, path)
		if !errors.Is(err, unix.ENOENT) {
			return f, err
		}
	}
	return nil, errAbsent
}

func openBelow(root, path string) (*folder, error) {
	top, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", root, err)
	}
	defer unix.Close(top)
	dir := filepath.Join(root, path)
	fd, err := openPlain(top, "."+filepath.Clean("/"+path), unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", dir, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("stat %s: %w", dir, err)
	}
	return &folder{fd: fd, dir: dir, inode: st.Ino}, nil
}

// openPlain opens a path below a folder. It fails if the path has symbolic links, or leaves the folder or its mount.
func openPlain(at int, path string, flags uint64) (int, error) {
	return unix.Openat2(at, path, &unix.OpenHow{Flags: flags | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOFOLLOW,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV})
}

// openFile opens a file of the folder. It fails if that is not a regular file.
func (f *folder) openFile(name string, flags uint64) (int, error) {
	fd, err := openPlain(f.fd, name, flags)
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", filepath.Join(f.dir, name), err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("%s is no regular file", filepath.Join(f.dir, name))
	}
	return fd, nil
}

// lines reads a file of the controller, and returns the value of each region in it.
func (f *folder) lines(name string) (map[string]uint64, error) {
	fd, err := f.openFile(name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	text := make([]byte, 0, maxFileSize)
	for len(text) < cap(text) {
		n, err := unix.Read(fd, text[len(text):cap(text)])
		if err != nil && !errors.Is(err, unix.EINTR) {
			return nil, fmt.Errorf("read %s: %w", filepath.Join(f.dir, name), err)
		} else if err == nil && n <= 0 {
			return parseLines(filepath.Join(f.dir, name), string(text))
		}
		text = text[:len(text)+max(n, 0)]
	}
	return nil, fmt.Errorf("%s has more than %d bytes", filepath.Join(f.dir, name), maxFileSize)
}

// parseLines parses the text of a file of the controller. "max" becomes NoLimit. So does a number that the kernel's signed counters
// cannot reach.
func parseLines(path, text string) (map[string]uint64, error) {
	values := map[string]uint64{}
	for line := range strings.Lines(text) {
		region, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if region == "" {
			continue
		}
		n, err := strconv.ParseUint(value, 10, 64)
		switch {
		case value == "max", errors.Is(err, strconv.ErrRange), err == nil && n > math.MaxInt64:
			n = NoLimit
		case err != nil:
			return nil, fmt.Errorf("%s: %q is not the name of a region and a number of bytes", path, strings.TrimSpace(line))
		}
		values[region] = n
	}
	return values, nil
}

// regionOf returns the name of the region that is the memory of the device with a PCI address. It returns an error if the controller
// has no such region, or several.
func regionOf(roots []string, pci string) (found string, err error) {
	if len(roots) == 0 {
		return "", errors.New("no hierarchy of cgroup v2 is mounted")
	}
	err = fmt.Errorf("the kernel's cgroup controller dmem is missing (no %s): it needs Linux 6.14 or later with CONFIG_CGROUP_DMEM", filepath.Join(roots[0], capacityFile))
	for _, root := range roots {
		top, failed := openBelow(root, "/")
		if failed != nil {
			continue
		}
		regions, failed := top.lines(capacityFile)
		top.close()
		if errors.Is(failed, unix.ENOENT) {
			continue
		} else if failed != nil {
			return "", failed
		}
		for name := range regions {
			if !isMemoryOf(name, pci) {
				continue
			} else if found != "" {
				return "", fmt.Errorf("the device has several regions of memory (%s, %s), and a budget is one number", min(found, name), max(found, name))
			}
			found = name
		}
		if found == "" {
			return "", fmt.Errorf("%s has no region of memory for the PCI address %q: the device's driver does not support the controller",
				filepath.Join(root, capacityFile), pci)
		}
		return found, nil
	}
	return "", err
}

// isMemoryOf reports whether a region is the memory of the device with a PCI address. It ignores zeros at the beginning of the
// address, because drivers write different numbers of them.
func isMemoryOf(region, pci string) bool {
	parts := strings.Split(region, "/")
	if len(parts) != 3 || pci == "" || !strings.EqualFold(strings.TrimLeft(parts[1], "0"), strings.TrimLeft(pci, "0")) {
		return false
	}
	_, number, isVRAM := strings.Cut(parts[2], "vram")
	return parts[2] == "vidmem" || isVRAM && strings.HasPrefix(parts[2], "vram") && strings.Trim(number, "0123456789") == ""
}

// kernelLimit is the limit in dmem.max of a cgroup's folder for one region.
type kernelLimit struct {
	in     *folder
	region string
}

func (l kernelLimit) by() By { return ByKernel }

func (l kernelLimit) read() (limit uint64, own bool, err error) {
	values, err := l.in.lines(maxFile)
	if errors.Is(err, unix.ENOENT) {
		return 0, false, fmt.Errorf("%s is missing: enable the controller (echo +dmem >%s)", filepath.Join(l.in.dir, maxFile), filepath.Join(filepath.Dir(l.in.dir), "cgroup.subtree_control"))
	} else if err != nil {
		return 0, false, err
	}
	limit, known := values[l.region]
	if !known {
		return 0, false, fmt.Errorf("%s has no region %s", filepath.Join(l.in.dir, maxFile), l.region)
	}
	return limit, true, nil
}

func (l kernelLimit) write(limit uint64) error {
	fd, err := l.in.openFile(maxFile, unix.O_WRONLY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	text := l.region + " max\n"
	if limit != NoLimit {
		text = fmt.Sprintf("%s %d\n", l.region, limit)
	}
	if n, err := unix.Write(fd, []byte(text)); err != nil {
		return fmt.Errorf("write %q to %s: %w", strings.TrimSpace(text), filepath.Join(l.in.dir, maxFile), err)
	} else if n != len(text) {
		return fmt.Errorf("write %q to %s: only %d bytes were taken", strings.TrimSpace(text), filepath.Join(l.in.dir, maxFile), n)
	}
	return nil
}
