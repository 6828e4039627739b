package secondwall

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file has a filesystem like the kernel's cgroup v2 with the controller dmem. A write to dmem.max is a line for one region. The
// kernel refuses an unknown region, and ignores a limit below what is in use.

// dmem is the filesystem. Its root lies in fs/cgroup of a folder that takes the place of /sys.
type dmem struct {
	t       *testing.T
	sysfs   string
	regions []string

	mu      sync.Mutex
	root    *folder
	folders map[string]*folder
	inodes  uint64
}

// folder is a cgroup, or the root.
type folder struct {
	fs.Inode
	of     *dmem
	limits map[string]string // text of each region's limit
	used   map[string]uint64
	raw    string        // text of dmem.max, or of dmem.capacity of the root; "": the text made from limits or regions
	fails  syscall.Errno // result of each write
	writes int
}

// file is dmem.max of a folder, or dmem.capacity of the root.
type file struct {
	fs.Inode
	in   *folder
	text func() string
}

const vram = "drm/0000:%s:00.0/vram0"

// The regions of the two AMD devices of the fixture. Its third device, Intel's, has none.
var (
	first  = fmt.Sprintf(vram, "03")
	second = fmt.Sprintf(vram, "43")
)

// newDmem mounts the filesystem in a copy of a tree of sysfs with two AMD devices and one of Intel's.
func newDmem(t *testing.T, regions ...string) *dmem {
	t.Helper()
	f := &dmem{t: t, sysfs: t.TempDir(), regions: regions, folders: map[string]*folder{}}
	if err := os.CopyFS(f.sysfs, os.DirFS("../../daemon/inventory/testdata/mixed")); err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(f.sysfs, "fs/cgroup")
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	f.root = &folder{of: f}
	server, err := fs.Mount(at, f.root, &fs.Options{MountOptions: fuse.MountOptions{DirectMount: true}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		rig.Eventually(t, "the folder tree is unmounted, which a daemon that reads it holds up", func() bool { return server.Unmount() == nil })
	})
	if len(regions) > 0 {
		f.add(f.root, "dmem.capacity", func() (text string) {
			f.mu.Lock()
			defer f.mu.Unlock()
			if f.root.raw != "" {
				return f.root.raw
			}
			for _, r := range f.regions {
				text += r + " 17163091968\n"
			}
			return text
		})
	}
	return f
}

// stable returns the attributes of a new inode. The caller holds no lock.
func (f *dmem) stable(mode uint32) fs.StableAttr {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.inodes++
	return fs.StableAttr{Mode: mode, Ino: 1000 + f.inodes}
}

func (f *dmem) add(to *folder, name string, text func() string) {
	to.AddChild(name, to.NewPersistentInode(context.Background(), &file{in: to, text: text}, f.stable(syscall.S_IFREG)), true)
}

// make makes the folder of a cgroup below folders that may exist, with dmem.max.
func (f *dmem) make(path string) *folder {
	at, name := f.root, ""
	for part := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		name += "/" + part
		next := f.folders[name]
		if next == nil {
			next = &folder{of: f, limits: map[string]string{}, used: map[string]uint64{}}
			for _, r := range f.regions {
				next.limits[r] = "max"
			}
			at.AddChild(part, at.NewPersistentInode(context.Background(), next, f.stable(syscall.S_IFDIR)), true)
			f.add(next, "dmem.max", next.text)
			f.folders[name] = next
		}
		at = next
	}
	return at
}

// remove removes the folder of a cgroup.
func (f *dmem) remove(path string) {
	parent := f.root
	if dir := filepath.Dir(path); dir != "/" {
		parent = f.folders[dir]
	}
	parent.RmChild(filepath.Base(path))
	delete(f.folders, path)
}

func (d *folder) text() (text string) {
	d.of.mu.Lock()
	defer d.of.mu.Unlock()
	if d.raw != "" {
		return d.raw
	}
	for _, r := range slices.Sorted(maps.Keys(d.limits)) {
		text += r + " " + d.limits[r] + "\n"
	}
	return text
}

// change changes the folder.
func (d *folder) change(how func()) {
	d.of.mu.Lock()
	defer d.of.mu.Unlock()
	how()
}

// limit returns the limit of a region.
func (d *folder) limit(region string) string {
	d.of.mu.Lock()
	defer d.of.mu.Unlock()
	return d.limits[region]
}

func (x *file) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	out.Mode, out.Size = 0o644, 4096
	return 0
}

func (x *file) Setattr(_ context.Context, _ fs.FileHandle, _ *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	out.Mode = 0o644
	return 0
}

func (x *file) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return nil, fuse.FOPEN_DIRECT_IO, 0
}

func (x *file) Read(_ context.Context, _ fs.FileHandle, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	text := x.text()
	if off >= int64(len(text)) {
		return fuse.ReadResultData(nil), 0
	}
	return fuse.ReadResultData(dest[:copy(dest, text[off:])]), 0
}

func (x *file) Write(_ context.Context, _ fs.FileHandle, data []byte, _ int64) (uint32, syscall.Errno) {
	x.in.of.mu.Lock()
	defer x.in.of.mu.Unlock()
	x.in.writes++
	region, value, _ := strings.Cut(strings.TrimSpace(string(data)), " ")
	limit, err := strconv.ParseUint(value, 10, 63)
	_, known := x.in.limits[region]
	switch {
	case x.in.fails != 0:
		return 0, x.in.fails
	case !known, err != nil && value != "max":
		return 0, syscall.EINVAL
	case value == "max", limit >= x.in.used[region]:
		x.in.limits[region] = value
	}
	return uint32(len(data)), 0
}
