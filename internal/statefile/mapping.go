package statefile

// This file opens, allocates and maps a file. file.go places the tables in the state file's mapping; failures.go maps
// a page of its own.

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapping is a file in memory. All of it is allocated when it is opened: on a full filesystem, a store to an
// unallocated page would be a fault that ends the process.
type mapping struct {
	fd  int // −1: only memory, which does not survive the daemon
	mem []byte
}

// openFile maps the file at path, and creates it if it does not exist. look checks the content; if it returns fresh,
// the content no longer holds and the file is emptied.
func openFile(path string, size uintptr, look func(fd int, st *unix.Stat_t) (fresh bool, err error)) (m *mapping, fresh bool, err error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, false, fmt.Errorf("open %s: %w", path, err)
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err != nil {
		err = fmt.Errorf("stat %s: %w", path, err)
	} else if st.Mode&unix.S_IFMT != unix.S_IFREG {
		err = fmt.Errorf("%s is no file: remove it", path)
	} else {
		fresh, err = look(fd, &st)
	}
	if err == nil && fresh { // drops all content at once, without visiting each record
		if err = errors.Join(unix.Ftruncate(fd, 0), allocate(fd, int64(size))); err != nil {
			err = errors.Join(fmt.Errorf("allocate %d bytes of %s: %w", size, path, err), unix.Ftruncate(fd, 0))
		}
	}
	if err == nil {
		if m, err = mapped(fd, size, unix.MAP_SHARED); err != nil {
			err = fmt.Errorf("map %s: %w", path, err)
		}
	}
	if err != nil {
		unix.Close(fd)
		return nil, false, err
	}
	return m, fresh, nil
}

func isFile(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode().IsRegular()
}

// allocate extends an empty file to size bytes, all allocated on the disk. If the filesystem has no call for that, it
// writes the bytes.
func allocate(fd int, size int64) error {
	for {
		err := unix.Fallocate(fd, 0, 0, size)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS):
			_, err = unix.Pwrite(fd, make([]byte, size), 0)
		}
		return err
	}
}

// ownedExclusively reports whether only the daemon's user may read or write a file.
func ownedExclusively(st *unix.Stat_t) bool {
	return uint32(os.Geteuid()) == st.Uid && st.Mode&0o077 == 0
}

// readHeader reads the header at the beginning of a file. T must have no pointers. n is the number of bytes that the
// file has of it.
func readHeader[T any](fd int, path string) (h T, n int, err error) {
	if n, err = unix.Pread(fd, unsafe.Slice((*byte)(unsafe.Pointer(&h)), unsafe.Sizeof(h)), 0); err != nil {
		err = fmt.Errorf("read %s: %w", path, err)
	}
	return h, n, err
}

// anonymous returns memory without a file. why says why there is no file; it is part of a returned error.
func anonymous(size uintptr, why error) (*mapping, error) {
	m, err := mapped(-1, size, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, errors.Join(why, fmt.Errorf("map %d bytes: %w", size, err))
	}
	return m, nil
}

func mapped(fd int, size uintptr, flags int) (*mapping, error) {
	mem, err := unix.Mmap(fd, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, flags)
	if err != nil {
		return nil, err
	}
	return &mapping{fd: fd, mem: mem}, nil
}

// close unmaps the memory; the content of the file stays.
func (m *mapping) close() error {
	err := unix.Munmap(m.mem)
	if m.fd >= 0 {
		err = errors.Join(err, unix.Close(m.fd))
		m.fd = -1
	}
	return err
}
