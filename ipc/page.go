package ipc

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// PageName is what /proc/PID/maps shows of a lease page, as /memfd:gpuarb-lease.
const PageName = "gpuarb-lease"

// pageSeals is what seals a page: its size cannot change, so that no one's
// mapping can be cut short, and nobody can add a seal that stops the writing.
const pageSeals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW

// PageID is the kernel's name for a page's file: it tells a page that the daemon
// made from every other file. The zero value names none.
type PageID struct {
	Dev, Ino uint64
}

// LeasePage is a mapped lease page, at either end. Its accessors are atomic and
// safe for concurrent use; Close is not, and after it no accessor may be called,
// nor a pointer be used that one returned.
type LeasePage struct {
	fd  int
	id  PageID
	mem []byte
}

// NewPage makes the page of a session, as the daemon does: a memfd of PageSize
// bytes, sealed, mapped, its header written, every slot zero.
func NewPage() (*LeasePage, error) {
	fd, err := unix.MemfdCreate(PageName, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3
		fd, err = unix.MemfdCreate(PageName, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, fmt.Errorf("lease page: memfd_create: %w", err)
	}
	p, err := initPage(fd)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("lease page: %w", err)
	}
	return p, nil
}

// initPage sizes, seals, maps and fills a fresh memfd.
func initPage(fd int) (*LeasePage, error) {
	if err := unix.Ftruncate(fd, PageSize); err != nil {
		return nil, fmt.Errorf("ftruncate: %w", err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, pageSeals); err != nil {
		return nil, fmt.Errorf("F_ADD_SEALS: %w", err)
	}
	p, err := mapPage(fd)
	if err != nil {
		return nil, err
	}
	page := p.page()
	page.Magic, page.Version, page.Slots = PageMagic, PageVersion, PageSlots
	return p, nil
}

// OpenPage maps the page of a Resume, as the daemon does: only the file that want
// names, which is one that the daemon made. The rest is as ReceivePage.
func OpenPage(fd int, want PageID) (*LeasePage, error) {
	id, _, err := identify(fd)
	if err != nil {
		return nil, fmt.Errorf("lease page: %w", err)
	}
	if want == (PageID{}) || id != want {
		return nil, fmt.Errorf("lease page: the file is %d:%d, not %d:%d", id.Dev, id.Ino, want.Dev, want.Ino)
	}
	return ReceivePage(fd)
}

// ReceivePage maps a page that came over a socket from somebody who is trusted to
// have made it, as a client maps the daemon's. It verifies that the file is sealed
// and PageSize long (so that no access to it can fault for its size), and that
// its header is a page's. On success the page owns fd; on an error fd stays the
// caller's.
func ReceivePage(fd int) (*LeasePage, error) {
	_, size, err := identify(fd)
	if err != nil {
		return nil, fmt.Errorf("lease page: %w", err)
	}
	if size != PageSize {
		return nil, fmt.Errorf("lease page: the file has %d bytes, not %d", size, PageSize)
	}
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return nil, fmt.Errorf("lease page: not a memfd: F_GET_SEALS: %w", err)
	}
	if seals&pageSeals != pageSeals {
		return nil, fmt.Errorf("lease page: the file's seals are %#x, without all of %#x", seals, pageSeals)
	}
	p, err := mapPage(fd)
	if err != nil {
		return nil, fmt.Errorf("lease page: %w", err)
	}
	var magic uint32
	var version, slots uint16
	err = p.Guard(func() { magic, version, slots = p.page().Magic, p.page().Version, p.page().Slots })
	if err == nil && (magic != PageMagic || version != PageVersion || slots != PageSlots) {
		err = fmt.Errorf("lease page: magic %#x, version %d, %d slots, not %#x, %d, %d",
			magic, version, slots, uint32(PageMagic), PageVersion, PageSlots)
	}
	if err != nil {
		unix.Munmap(p.mem)
		return nil, err
	}
	return p, nil
}

// ReadPage reads a page that somebody sends who says that a daemon made it, without mapping
// it: one that this daemon has no record of. A file that is none, or could still be cut,
// is not read.
func ReadPage(fd int) (*Page, error) {
	_, size, err := identify(fd)
	if err != nil {
		return nil, fmt.Errorf("lease page: %w", err)
	}
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil || seals&pageSeals != pageSeals || size != PageSize {
		return nil, fmt.Errorf("lease page: %d bytes, seals %#x: not a page", size, seals)
	}
	var p Page
	n, err := unix.Pread(fd, bytesOf(&p), 0)
	if err != nil || n != int(unsafe.Sizeof(p)) || p.Magic != PageMagic || p.Version != PageVersion || p.Slots != PageSlots {
		return nil, fmt.Errorf("lease page: %d bytes, magic %#x, version %d, %d slots: not a page", n, p.Magic, p.Version, p.Slots)
	}
	return &p, nil
}

// PageIDOf is the kernel's name for a file, which may be a page's.
func PageIDOf(fd int) (PageID, error) {
	id, _, err := identify(fd)
	return id, err
}

func identify(fd int) (PageID, int64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return PageID{}, 0, fmt.Errorf("fstat: %w", err)
	}
	return PageID{Dev: uint64(st.Dev), Ino: st.Ino}, st.Size, nil
}

func mapPage(fd int) (*LeasePage, error) {
	id, _, err := identify(fd)
	if err != nil {
		return nil, err
	}
	mem, err := unix.Mmap(fd, 0, PageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("mmap: %w", err)
	}
	return &LeasePage{fd: fd, id: id, mem: mem}, nil
}

func (p *LeasePage) page() *Page { return (*Page)(unsafe.Pointer(unsafe.SliceData(p.mem))) }

// FD is the memfd. It belongs to the page, which closes it in Close.
func (p *LeasePage) FD() int { return p.fd }

// ID is the kernel's name of the page's file.
func (p *LeasePage) ID() PageID { return p.id }

// Close unmaps the page and closes its memfd.
func (p *LeasePage) Close() error {
	return errors.Join(unix.Munmap(p.mem), unix.Close(p.fd))
}

// CreditWord is the credit word of a slot. Like the other accessors of slots it panics
// when slot is PageSlots or more, as an index does.
func (p *LeasePage) CreditWord(slot uint32) *atomic.Uint64 {
	return atomic64(&p.page().Lease[slot].Credit)
}

// Low is the low-water mark of a slot: a CreditWord without flags.
func (p *LeasePage) Low(slot uint32) *atomic.Uint64 { return atomic64(&p.page().Lease[slot].Low) }

// Pending is what the client says of bytes freed and not yet executed.
func (p *LeasePage) Pending(slot uint32) *atomic.Uint64 {
	return atomic64(&p.page().Lease[slot].Pending)
}

// Limit is memory.max in bytes, for the client's information.
func (p *LeasePage) Limit(slot uint32) *atomic.Uint64 { return atomic64(&p.page().Lease[slot].Limit) }

// JobOptions is what a job was given beyond what the rules say, as Page has it.
type JobOptions struct {
	Memory  uint64
	Share   uint32
	Streams uint32
	Job     uint32
}

// SetJobOptions shows what the session's job was given.
func (p *LeasePage) SetJobOptions(g JobOptions) {
	page := p.page()
	atomic.StoreUint64(&page.Memory, g.Memory)
	atomic.StoreUint32(&page.Share, g.Share)
	atomic.StoreUint32(&page.Streams, g.Streams)
	atomic.StoreUint32(&page.Job, g.Job)
	atomic.StoreUint32(&page.Said, 1)
}

// JobOptions is what a page says of its session's job; ok is false where it says nothing, as one
// does that an earlier version made.
func (p *Page) JobOptions() (g JobOptions, ok bool) {
	return JobOptions{Memory: p.Memory, Share: min(p.Share, 1000), Streams: p.Streams, Job: p.Job}, p.Said == 1
}

// Counts is what the client says of its blocks and pools: see CountsTold.
func (p *LeasePage) Counts(slot uint32) *atomic.Uint64 {
	return atomic64(&p.page().Lease[slot].Counts)
}

// Managed returns the word with the bytes of the client's blocks that are managed memory, as the client says.
func (p *LeasePage) Managed(slot uint32) *atomic.Uint64 {
	return atomic64(&p.page().Lease[slot].Managed)
}

// Imported is how many bytes of other processes' memory the client has imported, as it says.
func (p *LeasePage) Imported(slot uint32) *atomic.Uint64 {
	return atomic64(&p.page().Lease[slot].Imported)
}

// Streams is the count of a slot's streams while it is lent: see StreamsOpen.
func (p *LeasePage) Streams(slot uint32) *atomic.Uint64 {
	return atomic64(&p.page().Lease[slot].Streams)
}

// StreamCount is how many streams such a word counts; lent is false where it counts none.
func StreamCount(word uint64) (n int, lent bool) {
	return int(word & StreamsMask), word&StreamsOpen != 0
}

// Shown is what the client is to be told of the memory behind a slot. The daemon alone writes
// it, by these accessors; Room last.
func (p *LeasePage) Shown(slot uint32) (room, used, total, at *atomic.Uint64) {
	s := &p.page().Shown[slot]
	return atomic64(&s.Room), atomic64(&s.Used), atomic64(&s.Total), atomic64(&s.At)
}

// Ended is 1 when the session is over.
func (p *LeasePage) Ended() *atomic.Uint32 { return atomic32(&p.page().Ended) }

// Threads is how many live threads of the client ever made an intercepted call,
// as the client says.
func (p *LeasePage) Threads() *atomic.Uint32 { return atomic32(&p.page().Threads) }

// Host is how many bytes of pinned host memory the client holds, as it says.
func (p *LeasePage) Host() *atomic.Uint64 { return atomic64(&p.page().Host) }

// TakeCredit is TakeCredit on a slot of the page: the client's fast path.
func (p *LeasePage) TakeCredit(slot uint32, n uint64) bool {
	_, ok := TakeCredit(p.CreditWord(slot), p.Low(slot), n)
	return ok
}

// GiveCredit is GiveCredit on a slot of the page. When the word that it returns says
// Notify, the client owes the daemon a FreedNotice.
func (p *LeasePage) GiveCredit(slot uint32, n uint64) CreditWord {
	return GiveCredit(p.CreditWord(slot), n)
}

// Guard runs f, which reads or writes the page, and turns a memory fault inside
// the page into an error. The size is sealed, but a client can still punch a
// hole into its memfd, and the kernel may then have no memory to fill it: that
// must cost the client its session and not the daemon its life. A panic that is
// no fault of this page goes on. Effects of f up to the fault remain.
func (p *LeasePage) Guard(f func()) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch r := recover().(type) {
		case nil:
		case interface{ Addr() uintptr }:
			base := uintptr(unsafe.Pointer(unsafe.SliceData(p.mem)))
			if r.Addr() < base || r.Addr() >= base+uintptr(len(p.mem)) {
				panic(r)
			}
			err = fmt.Errorf("lease page %d:%d: memory fault at offset %d: %w",
				p.id.Dev, p.id.Ino, r.Addr()-base, ErrPageFault)
		default:
			panic(r)
		}
	}()
	f()
	return nil
}

func atomic64(v *uint64) *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Pointer(v)) }
func atomic32(v *uint32) *atomic.Uint32 { return (*atomic.Uint32)(unsafe.Pointer(v)) }
