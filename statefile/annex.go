package statefile

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The annex is a second file, for what version 3 of the state file has no room for. It is
// a file of its own so that the layout of the first one stays what the daemons before this
// one read: they begin every other anew, and a return to one of them would lift the
// budgets of what runs.
//
// A daemon that does not know of the annex leaves it as it is. So no row of it is believed
// without the record that it belongs to, and what it says in sum has to agree with that.
const (
	annexSuffix  = ".annex"
	annexMagic   = 0x58454e4e41424741 // "AGBANNEX" as it lies in memory
	annexVersion = 2
	// MaxThreads bounds the threads of all leases together, beyond those in the leases' records.
	MaxThreads = 1 << 18
)

// annexHeader is the first page of the annex.
type annexHeader struct {
	Magic      uint64
	Version    uint32
	ThreadSize uint32
	BootID     [16]byte

	HighThread uint32
	Pad        uint32
}

// Thread is a thread of a lease, where the lease's record has no room for another Maker.
// OpenedAt is the lease's: a row with another is a lease's that had the index before.
type Thread struct {
	Live     uint32
	Lease    uint32 // index of its record
	OpenedAt int64
	Maker    Maker
}

const annexSize = headerSize + MaxThreads*unsafe.Sizeof(Thread{})

// annex is the mapping of the annex.
type annex struct {
	back *backing
	head *annexHeader
}

// openAnnex maps the annex at path, begun anew where it is none of ours or the state file
// is fresh. Where there can be none it does not outlive the daemon, as Volatile says.
func (f *File) openAnnex(path string, fresh bool) error {
	a, err := mapAnnex(path, fresh)
	if err != nil {
		a, err = anonymousAnnex(err)
	}
	if err != nil {
		return err
	}
	f.bindAnnex(a)
	f.Threads.collect()
	f.Threads.Each(func(i int, t *Thread) {
		if t.Lease >= *f.Leases.high || f.Leases.rows[t.Lease].Live != 1 || f.Leases.rows[t.Lease].OpenedAt != t.OpenedAt {
			f.Threads.Free(i)
		}
	})
	return nil
}

func mapAnnex(path string, fresh bool) (*annex, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	a, err := annexOf(fd, path, fresh)
	if err != nil {
		unix.Close(fd)
	}
	return a, err
}

func annexOf(fd int, path string, fresh bool) (*annex, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("stat %s: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || uint32(os.Geteuid()) != st.Uid || st.Mode&0o077 != 0 {
		return nil, fmt.Errorf("%s: must be a file of ours alone (owner %d, mode 600); remove it", path, os.Geteuid())
	}
	var h annexHeader
	if _, err := unix.Pread(fd, unsafe.Slice((*byte)(unsafe.Pointer(&h)), unsafe.Sizeof(h)), 0); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	high := h.HighThread
	h.HighThread = 0
	if fresh = fresh || h != ourAnnex() || st.Size != int64(annexSize); fresh {
		high = 0
		if err := empty(fd, int64(annexSize)); err != nil {
			return nil, fmt.Errorf("truncate %s: %w", path, err)
		}
	}
	back, err := mapped(fd, int(annexSize), unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", path, err)
	}
	a := newAnnex(back)
	a.head.HighThread = min(high, MaxThreads)
	return a, nil
}

func ourAnnex() annexHeader {
	return annexHeader{Magic: annexMagic, Version: annexVersion,
		ThreadSize: uint32(unsafe.Sizeof(Thread{})), BootID: bootID()}
}

// newAnnex makes the header of a mapping ours.
func newAnnex(back *backing) *annex {
	a := &annex{back: back, head: (*annexHeader)(unsafe.Pointer(&back.mem[0]))}
	h := ourAnnex()
	h.Magic, h.HighThread = 0, a.head.HighThread
	*a.head = h
	atomic.StoreUint64(&a.head.Magic, annexMagic)
	return a
}

// anonymousAnnex is an annex without a file; why is what Volatile says.
func anonymousAnnex(why error) (*annex, error) {
	back, err := mapped(-1, int(annexSize), unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, errors.Join(why, fmt.Errorf("map %d bytes: %w", annexSize, err))
	}
	a := newAnnex(back)
	a.back.volatile.Store(&why)
	return a, nil
}

func (f *File) bindAnnex(a *annex) {
	f.annex = a
	f.Threads.lay(a.back, headerSize, MaxThreads, &a.head.HighThread)
}
