package gpufs

// This file has the answers of nodes that cannot be changed. All read-only nodes embed it.

import (
	"context"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// readOnly refuses every change. For most callers the kernel refuses already, by a directory's mode; these answers
// are for root. Without them the library would report success for some changes.
type readOnly struct{}

var (
	_ fs.NodeSetattrer = readOnly{}
	_ fs.NodeCreater   = readOnly{}
	_ fs.NodeMkdirer   = readOnly{}
	_ fs.NodeMknoder   = readOnly{}
	_ fs.NodeSymlinker = readOnly{}
	_ fs.NodeLinker    = readOnly{}
	_ fs.NodeUnlinker  = readOnly{}
	_ fs.NodeRmdirer   = readOnly{}
	_ fs.NodeRenamer   = readOnly{}
)

func (readOnly) Setattr(context.Context, fs.FileHandle, *fuse.SetAttrIn, *fuse.AttrOut) syscall.Errno {
	return syscall.EPERM
}

func (readOnly) Create(context.Context, string, uint32, uint32, *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	return nil, nil, 0, syscall.EPERM
}

func (readOnly) Mkdir(context.Context, string, uint32, *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return nil, syscall.EPERM
}

func (readOnly) Mknod(context.Context, string, uint32, uint32, *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return nil, syscall.EPERM
}

func (readOnly) Symlink(context.Context, string, string, *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return nil, syscall.EPERM
}

func (readOnly) Link(context.Context, fs.InodeEmbedder, string, *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return nil, syscall.EPERM
}

func (readOnly) Unlink(context.Context, string) syscall.Errno { return syscall.EPERM }

func (readOnly) Rmdir(context.Context, string) syscall.Errno { return syscall.EPERM }

func (readOnly) Rename(context.Context, string, fs.InodeEmbedder, string, uint32) syscall.Errno {
	return syscall.EPERM
}
