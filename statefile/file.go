package statefile

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ErrFull says that a table has no free record left.
var ErrFull = errors.New("statefile: table full")

const (
	jobSize    = unsafe.Sizeof(Job{})
	sessSize   = unsafe.Sizeof(Session{})
	leaseSize  = unsafe.Sizeof(Lease{})
	tickSize   = unsafe.Sizeof(Ticket{})
	limitSize  = unsafe.Sizeof(Limit{})
	threadSize = unsafe.Sizeof(Thread{})
	cgroupSize = unsafe.Sizeof(Cgroup{})
	fileSize   = headerSize + MaxJobs*jobSize + MaxSessions*sessSize + MaxLeases*leaseSize + MaxTickets*tickSize +
		MaxLimits*limitSize + MaxThreads*threadSize + MaxCgroups*cgroupSize
)

// File is the state file, mapped into memory. It is not safe for concurrent use: the daemon's lock guards it.
type File struct {
	file     *mapping
	volatile error  // why it does not outlive the daemon; nil: it does
	aside    string // where the unreadable file was put that this one replaces; "": there was none

	Jobs     table[Job]
	Sessions table[Session]
	Leases   table[Lease]
	Tickets  table[Ticket]
	Limits   table[Limit]
	Threads  table[Thread]
	Cgroups  table[Cgroup]
}

// Open maps the state file at path, and creates it if it does not exist. A file of another boot is emptied, because nothing in it is true any
// more. A file of another version, one that was cut or damaged, and one that is not the daemon's alone is set aside (Aside says where), and
// a new one is created. fresh: the file holds nothing. The caller holds the lock on the socket's path that keeps a second daemon away.
func Open(path string) (f *File, fresh bool, err error) {
	file, fresh, err := openState(path)
	var strange *strange
	aside := ""
	if errors.As(err, &strange) {
		if aside, err = setAside(path, strange.kind); err != nil {
			return nil, false, errors.Join(strange, err)
		}
		file, fresh, err = openState(path)
	}
	if err != nil {
		return nil, false, err
	}
	f = newFile(file, fresh)
	f.aside = aside
	return f, fresh, nil
}

func openState(path string) (file *mapping, fresh bool, err error) {
	file, fresh, err = openFile(path, fileSize, func(fd int, st *unix.Stat_t) (bool, error) {
		if err := lock(fd, path); err != nil {
			return false, err
		}
		return examine(fd, path, st)
	})
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EACCES) && isFile(path) {
		var why unix.Errno
		errors.As(err, &why)
		err = &strange{kindForeign, fmt.Sprintf("%s is not ours: %v", path, why)}
	}
	return file, fresh, err
}

func isFile(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode().IsRegular()
}

// Anonymous returns a state file in memory alone, of which nothing survives the daemon, for a machine whose runtime directory cannot be written. why
// is what Volatile returns.
func Anonymous(why error) (*File, error) {
	file, err := anonymous(fileSize, why)
	if err != nil {
		return nil, err
	}
	f := newFile(file, true)
	f.volatile = why
	return f, nil
}

// Aside returns where Open put a state file that it could not read; "": there was none.
func (f *File) Aside() string { return f.aside }

// newFile finds the tables in a mapping. If the mapping is fresh, it writes the header first, and the magic number last: a daemon that is
// killed in between leaves a file that the next one sets aside.
func newFile(file *mapping, fresh bool) *File {
	head := (*header)(unsafe.Pointer(&file.mem[0]))
	f := &File{file: file}
	if fresh {
		*head = ours()
		atomic.StoreUint64(&head.Magic, fileMagic)
	}
	at := f.Jobs.lay(file, headerSize, MaxJobs, &head.HighJob)
	at = f.Sessions.lay(file, at, MaxSessions, &head.HighSession)
	at = f.Leases.lay(file, at, MaxLeases, &head.HighLease)
	at = f.Tickets.lay(file, at, MaxTickets, &head.HighTicket)
	at = f.Limits.lay(file, at, MaxLimits, &head.HighLimit)
	at = f.Threads.lay(file, at, MaxThreads, &head.HighThread)
	f.Cgroups.lay(file, at, MaxCgroups, &head.HighCgroup)
	f.Threads.Each(func(i int, t *Thread) { // the file may be damaged
		if t.Lease >= *f.Leases.high || f.Leases.rows[t.Lease].Live != 1 {
			f.Threads.Free(i)
		}
	})
	return f
}

// ours returns the header of an empty file of this version, without its Magic.
func ours() header {
	return header{Version: fileVersion, HeaderSize: headerSize, JobSize: uint32(jobSize),
		SessSize: uint32(sessSize), LeaseSize: uint32(leaseSize), TicketSize: uint32(tickSize), LimitSize: uint32(limitSize),
		ThreadSize: uint32(threadSize), CgroupSize: uint32(cgroupSize), BootID: bootID()}
}

// Volatile returns why the records would not survive the daemon, such as a full filesystem; nil: they would.
func (f *File) Volatile() error { return f.volatile }

// bootID is the kernel's random name for this boot; zero when it cannot be read.
func bootID() (id [16]byte) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return id
	}
	copy(id[:], bytes.ReplaceAll(bytes.TrimSpace(text), []byte("-"), nil))
	return id
}

// lock locks the state file for this process. The daemon also has a lock file beside its socket; but that may have been removed, and a
// daemon whose socket systemd opened has none.
func lock(fd int, path string) error {
	l := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(uintptr(fd), unix.F_SETLK, &l); !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EACCES) {
		return nil // locked; or the filesystem has no locks
	}
	who := "another daemon"
	if l = (unix.Flock_t{Type: unix.F_WRLCK}); unix.FcntlFlock(uintptr(fd), unix.F_GETLK, &l) == nil && l.Pid > 0 {
		who += fmt.Sprintf(", pid %d", l.Pid)
	}
	return fmt.Errorf("%s is in use by %s: stop that one first, programs go on meanwhile", path, who)
}

// Unlock lets another process open the file while this one cannot call Close, because a thread hangs. Nothing may be written to the file
// afterwards.
func (f *File) Unlock() {
	if fd := f.file.fd; fd >= 0 {
		_ = unix.FcntlFlock(uintptr(fd), unix.F_SETLK, &unix.Flock_t{Type: unix.F_UNLCK})
	}
}

// Close unmaps the file; the content stays.
func (f *File) Close() error { return f.file.close() }

// table is one array of records.
type table[T record] struct {
	rows []T
	high *uint32 // in the file's header: records from this index on were never used, so that a start need not read them
	free []int   // free records below high; the one that was freed last is used first
}

// record is a type that tables have. Its first field is Live: 1 in a committed record, 0 in a free one.
type record interface {
	Job | Session | Lease | Ticket | Limit | Thread | Cgroup
}

// live returns the Live field of a record.
func live[T record](row *T) *uint32 { return (*uint32)(unsafe.Pointer(row)) }

// lay sets up a table of most records that begins at an offset of the mapping, finds the free records below high, and returns the offset at
// which the table ends. The header was examined before, but for high, which is kept within the table.
func (t *table[T]) lay(file *mapping, at uintptr, most int, high *uint32) uintptr {
	t.rows = unsafe.Slice((*T)(unsafe.Pointer(&file.mem[at])), most)
	t.high = high
	*high = min(*high, uint32(most))
	for i := int(*high) - 1; i >= 0; i-- {
		if *live(&t.rows[i]) != 1 { // 0, or of a damaged file
			t.free = append(t.free, i)
		}
	}
	return at + uintptr(most)*unsafe.Sizeof(t.rows[0])
}

// New takes a free record, zeroed, and returns its index, or ErrFull. The record
// is not live before Commit: a daemon killed in between leaves nothing behind.
func (t *table[T]) New() (int, *T, error) {
	var i int
	switch n := len(t.free); {
	case n > 0:
		i, t.free = t.free[n-1], t.free[:n-1]
	case int(*t.high) < len(t.rows):
		i = int(*t.high)
		atomic.StoreUint32(t.high, uint32(i+1))
	default:
		return 0, nil, ErrFull
	}
	var zero T
	t.rows[i] = zero
	return i, &t.rows[i], nil
}

// Commit makes a record live.
func (t *table[T]) Commit(i int) { atomic.StoreUint32(live(&t.rows[i]), 1) }

// Free gives back a record that New returned, live or not yet.
func (t *table[T]) Free(i int) {
	atomic.StoreUint32(live(&t.rows[i]), 0)
	t.free = append(t.free, i)
}

// Reserve takes the first record for which fits returns true out of those that are free, as it was before it was freed or if it was never
// committed, and returns its index; -1: there is none.
func (t *table[T]) Reserve(fits func(row *T) bool) int {
	n := slices.IndexFunc(t.free, func(i int) bool { return fits(&t.rows[i]) })
	if n < 0 {
		return n
	}
	i := t.free[n]
	t.free = slices.Delete(t.free, n, n+1)
	return i
}

// At returns the record at an index that New returned.
func (t *table[T]) At(i int) *T { return &t.rows[i] }

// Each calls f for every live record in index order.
func (t *table[T]) Each(f func(i int, row *T)) {
	for i := range t.rows[:*t.high] {
		if row := &t.rows[i]; *live(row) == 1 {
			f(i, row)
		}
	}
}
