package ipc

// This file makes, maps and reads the lease page, the memory that a daemon and one client share. layout.go has its
// layout, creditword.go the credit word; package shim keeps the daemon's side of the ledger in it.

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// PageName is the memfd's name: /proc/PID/maps shows a page as /memfd:gpuarb-lease.
const PageName = "gpuarb-lease"

// pageSeals fixes the page's size, so that no access can fault because the file was cut. It also forbids further
// seals, which could make the page read-only.
const pageSeals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW

// PageID is the device and inode number of a page's file. It distinguishes a page that the daemon made from every
// other file. The zero value stands for no file.
type PageID struct {
	Dev, Ino uint64
}

// LeasePage is a mapped lease page, at either end. Its accessors are atomic and safe for concurrent use. Close is
// not: after Close no accessor may be called, and no pointer from an accessor may be used.
type LeasePage struct {
	fd  int
	id  PageID
	mem []byte
}

// NewPage makes a session's page for the daemon: a memfd of PageSize bytes, sealed and mapped, with a header and with
// all slots zero.
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

// initPage sizes, seals, maps and fills a new memfd.
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

// OpenPage maps the page of a Resume for the daemon. It accepts only the file that want identifies, which is one that
// the daemon made. It makes the checks of ReceivePage too.
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

// ReceivePage maps a page from a trusted sender, as a client maps the daemon's page. It checks that the file is
// sealed and has PageSize bytes, so that no access can fault beyond its end, and that the header is a page's. On
// success the page owns fd. On an error the caller keeps fd.
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

// ReadPage reads a page of which this daemon has no record, without mapping it: the sender claims that a daemon made
// it. It returns an error for a file that is not a page or whose size could change.
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

// PageIDOf returns the PageID of any open file.
func PageIDOf(fd int) (PageID, error) {
	id, _, err := identify(fd)
	return id, err
}

// identify returns a file's PageID and its size in bytes.
func identify(fd int) (PageID, int64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return PageID{}, 0, fmt.Errorf("fstat: %w", err)
	}
	return PageID{Dev: uint64(st.Dev), Ino: st.Ino}, st.Size, nil
}

// mapPage maps a memfd of PageSize bytes.
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

// page returns the mapped memory with its layout.
func (p *LeasePage) page() *Page { return (*Page)(unsafe.Pointer(unsafe.SliceData(p.mem))) }

// FD returns the memfd. The page owns it until Close.
func (p *LeasePage) FD() int { return p.fd }

// ID returns the PageID of the page's file.
func (p *LeasePage) ID() PageID { return p.id }

// Close unmaps the page and closes its memfd.
func (p *LeasePage) Close() error {
	return errors.Join(unix.Munmap(p.mem), unix.Close(p.fd))
}

// CreditWord returns the credit word of a slot. Like the other accessors of slots it panics if slot is PageSlots or
// more.
func (p *LeasePage) CreditWord(slot uint32) *atomic.Uint64 {
	return atomic64(&p.page().Lease[slot].Credit)
}

// Low returns the least credit of a slot since the daemon last changed the credit word, with the epoch in which the
// client saw it. It has the layout of the credit word, without flags.
func (p *LeasePage) Low(slot uint32) *atomic.Uint64 { return atomic64(&p.page().Lease[slot].Low) }

// Pending returns the client's count of pending bytes.
func (p *LeasePage) Pending(slot uint32) *atomic.Uint64 {
	return atomic64(&p.page().Lease[slot].Pending)
}

// Limit returns memory.max in bytes, for the client's information.
func (p *LeasePage) Limit(slot uint32) *atomic.Uint64 { return atomic64(&p.page().Lease[slot].Limit) }

// JobOptions are the limits that a job was opened with, as the Page has them.
type JobOptions struct {
	Memory  uint64
	Share   uint32
	Streams uint32
	Job     uint32
}

// SetJobOptions publishes the options of the session's job. It sets Said last, so that a reader never takes the zero
// values before it for options.
func (p *LeasePage) SetJobOptions(g JobOptions) {
	page := p.page()
	atomic.StoreUint64(&page.Memory, g.Memory)
	atomic.StoreUint32(&page.Share, g.Share)
	atomic.StoreUint32(&page.Streams, g.Streams)
	atomic.StoreUint32(&page.Job, g.Job)
	atomic.StoreUint32(&page.Said, 1)
}

// JobOptions returns the options of the session's job. ok is false if the page has none, because an earlier version
// made it.
func (p *Page) JobOptions() (g JobOptions, ok bool) {
	return JobOptions{Memory: p.Memory, Share: min(p.Share, 1000), Streams: p.Streams, Job: p.Job}, p.Said == 1
}

// Counts returns the client's counts of blocks and pools: see CountsTold.
func (p *LeasePage) Counts(slot uint32) *atomic.Uint64 {
	return atomic64(&p.page().Lease[slot].Counts)
}

// Managed returns the client's count of bytes in blocks of managed memory.
func (p *LeasePage) Managed(slot uint32) *atomic.Uint64 {
	return atomic64(&p.page().Lease[slot].Managed)
}

// Imported returns the client's count of bytes that it has imported from other processes.
func (p *LeasePage) Imported(slot uint32) *atomic.Uint64 {
	return atomic64(&p.page().Lease[slot].Imported)
}

// Streams returns the slot's count of streams, which the client changes while StreamsOpen is set.
func (p *LeasePage) Streams(slot uint32) *atomic.Uint64 {
	return atomic64(&p.page().Lease[slot].Streams)
}

// StreamCount decodes LeaseSlot.Streams: the number of streams, and whether the client counts them. If lent is false,
// n has no meaning.
func StreamCount(word uint64) (n int, lent bool) {
	return int(word & StreamsMask), word&StreamsOpen != 0
}

// Shown returns a slot's answer to memory queries (see Shown in layout.go). The daemon alone writes it, by these
// accessors, and writes Room last.
func (p *LeasePage) Shown(slot uint32) (room, used, total, at *atomic.Uint64) {
	s := &p.page().Shown[slot]
	return atomic64(&s.Room), atomic64(&s.Used), atomic64(&s.Total), atomic64(&s.At)
}

// Called returns a slot's mark of calls. The client sets it to 1 if it is 0, and the daemon swaps it for 0.
func (p *LeasePage) Called(slot uint32) *atomic.Uint32 { return atomic32(&p.page().Called[slot]) }

// Ended returns a word that is 1 after the end of the session.
func (p *LeasePage) Ended() *atomic.Uint32 { return atomic32(&p.page().Ended) }

// Threads returns the client's count of live threads that have made an intercepted call.
func (p *LeasePage) Threads() *atomic.Uint32 { return atomic32(&p.page().Threads) }

// Host returns the client's count of bytes of pinned host memory.
func (p *LeasePage) Host() *atomic.Uint64 { return atomic64(&p.page().Host) }

// TakeCredit takes n bytes from a slot's credit, as the function TakeCredit does.
func (p *LeasePage) TakeCredit(slot uint32, n uint64) bool {
	_, ok := TakeCredit(p.CreditWord(slot), p.Low(slot), n)
	return ok
}

// GiveCredit returns n bytes to a slot's credit, as the function GiveCredit does. If the returned word has Notify,
// the client must send a FreedNotice.
func (p *LeasePage) GiveCredit(slot uint32, n uint64) CreditWord {
	return GiveCredit(p.CreditWord(slot), n)
}

// Guard calls f, which reads or writes the page, and turns a memory fault inside the page into an error. The size is
// sealed, but a client can punch a hole into its memfd, and the kernel may then lack memory to fill the hole. Such a
// client must lose its session without ending the daemon. A panic that is not a fault of this page passes through.
// Effects of f before the fault remain.
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
