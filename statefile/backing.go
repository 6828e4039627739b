package statefile

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// backing knows which pages of the mapping have memory behind them. A store to a page
// of a sparse file on a full filesystem is a fault that ends the process: so a page is
// allocated before it is touched, and where that fails, anonymous memory takes its
// place. What lies there does not survive the daemon; admission goes on.
//
// It has a lock of its own, as memory is allocated ahead of what is written under the
// daemon's (see Promise).
type backing struct {
	fd       int // −1: nothing survives
	mem      []byte
	volatile atomic.Pointer[error] // why some of it does not survive; nil: all does
	late     atomic.Int64          // how often it was allocated for a record that was not promised

	mu    sync.Mutex
	ready []bool // by page
}

// lasting says why some of it does not survive; nil: all does.
func (b *backing) lasting() error {
	if why := b.volatile.Load(); why != nil {
		return *why
	}
	return nil
}

// chunk is how many pages are allocated at a time.
const chunk = 16

// openFile maps the file at path, which is made where it is absent. look tells what it holds; fresh: nothing that is true, and so it
// is emptied.
func openFile(path string, size uintptr, look func(fd int, st *unix.Stat_t) (fresh bool, err error)) (b *backing, fresh bool, err error) {
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
	if err == nil && fresh { // all content goes at once, without a touch of each record
		if err = errors.Join(unix.Ftruncate(fd, 0), unix.Ftruncate(fd, int64(size))); err != nil {
			err = fmt.Errorf("truncate %s: %w", path, err)
		}
	}
	if err == nil {
		if b, err = mapped(fd, size, unix.MAP_SHARED); err != nil {
			err = fmt.Errorf("map %s: %w", path, err)
		}
	}
	if err != nil {
		unix.Close(fd)
		return nil, false, err
	}
	return b, fresh, nil
}

// oursAlone says whether nobody else may read or write a file.
func oursAlone(st *unix.Stat_t) bool {
	return uint32(os.Geteuid()) == st.Uid && st.Mode&0o077 == 0
}

// readHeader reads the header that a file begins with, which is bytes alone, and how many bytes of that there are.
func readHeader[T any](fd int, path string) (h T, n int, err error) {
	if n, err = unix.Pread(fd, unsafe.Slice((*byte)(unsafe.Pointer(&h)), unsafe.Sizeof(h)), 0); err != nil {
		err = fmt.Errorf("read %s: %w", path, err)
	}
	return h, n, err
}

// anonymous is memory without a file; why is what lasting says.
func anonymous(size uintptr, why error) (*backing, error) {
	b, err := mapped(-1, size, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, errors.Join(why, fmt.Errorf("map %d bytes: %w", size, err))
	}
	b.volatile.Store(&why)
	return b, nil
}

// mapped maps a file, or memory alone where fd is below 0, with a header that can be touched.
func mapped(fd int, size uintptr, flags int) (*backing, error) {
	mem, err := unix.Mmap(fd, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, flags)
	if err != nil {
		return nil, err
	}
	b := &backing{fd: fd, mem: mem, ready: make([]bool, (len(mem)+pageSize-1)/pageSize)}
	b.ensure(0, headerSize)
	return b, nil
}

var pageSize = os.Getpagesize()

// ensure makes the pages of mem[from:to] fit to be touched.
func (b *backing) ensure(from, to uintptr) {
	b.mu.Lock()
	defer b.mu.Unlock()
	first, last := int(from)/pageSize, (int(to)+pageSize-1)/pageSize
	for page := first; page < last; page++ {
		if b.ready[page] {
			continue
		}
		end := page + 1
		for end < len(b.ready) && end < max(last, page+chunk) && !b.ready[end] {
			end++
		}
		b.back(page, end)
		page = end - 1
	}
}

// back allocates pages, all at once or those that it can.
func (b *backing) back(first, end int) {
	err := b.allocate(first, end)
	for page := first; page < end; page++ {
		if err != nil {
			if one := b.allocate(page, page+1); one != nil {
				b.replace(page, one)
			}
		}
		b.ready[page] = true
	}
}

func (b *backing) allocate(first, end int) error {
	if b.fd < 0 {
		return nil
	}
	from, to := first*pageSize, min(end*pageSize, len(b.mem))
	for {
		err := unix.Fallocate(b.fd, unix.FALLOC_FL_KEEP_SIZE, int64(from), int64(to-from))
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS):
			return nil // it cannot be known beforehand
		}
		return err
	}
}

// replace puts anonymous memory in a page's place.
func (b *backing) replace(page int, why error) {
	at := unsafe.Pointer(&b.mem[page*pageSize])
	_, err := unix.MmapPtr(-1, 0, at, uintptr(pageSize), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_FIXED)
	why = errors.Join(why, err)
	b.volatile.Store(&why)
}

// close unmaps the memory; what lies in the file stays.
func (b *backing) close() error {
	err := unix.Munmap(b.mem)
	if b.fd >= 0 {
		err = errors.Join(err, unix.Close(b.fd))
		b.fd = -1
	}
	return err
}
