package statefile

// This file opens the state file and finds the tables in it. mapping.go maps it; table.go has the tables.

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// File is the mapped state file. It is not safe for concurrent use: the daemon's lock guards it.
type File struct {
	file     *mapping
	volatile error  // why the file does not survive the daemon; nil: it does
	aside    string // path of the unreadable file that this one replaces; "": there was none

	Jobs     table[Job]
	Sessions table[Session]
	Leases   table[Lease]
	Tickets  table[Ticket]
	Limits   table[Limit]
	Threads  table[Thread]
	Cgroups  table[Cgroup]
	Bindings table[Binding] // in a file of its own (tablefile.go)

	Suspensions table[Suspension] // in a file of its own

	bound, asked         *mapping // the files of Bindings and Suspensions
	lost, lostSuspension error    // as LostBindings and LostSuspensions return them
}

// Open maps the state file at path, and creates it if it does not exist. A file of another boot is emptied, because
// its content no longer holds. A file that has another version, is damaged or truncated, or is open to other users is
// set aside (Aside says where), and a new one is created. fresh: the file is empty. The caller must hold the lock on
// the socket's path, which keeps a second daemon away.
func Open(path string) (f *File, fresh bool, err error) {
	file, fresh, err := openState(path)
	var strange *unreadable
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
	if err := f.openTables(func(t *tableFile) (*mapping, error, error) { return t.open(path) }); err != nil {
		return nil, false, err
	}
	return f, fresh, nil
}

// openTables opens the tables that have files of their own. If that fails, it closes all files.
func (f *File) openTables(open func(*tableFile) (file *mapping, lost, err error)) (err error) {
	if f.bound, f.lost, err = open(&bindingsFile); err != nil {
		return errors.Join(err, f.file.close())
	}
	if f.asked, f.lostSuspension, err = open(&suspensionsFile); err != nil {
		return errors.Join(err, f.bound.close(), f.file.close())
	}
	f.Bindings.lay(f.bound, headerSize, MaxBindings, usedRecords(f.bound))
	f.Suspensions.lay(f.asked, headerSize, MaxSuspensions, usedRecords(f.asked))
	return nil
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
		err = &unreadable{kindForeign, fmt.Sprintf("%s is not ours: %v", path, why)}
	}
	return file, fresh, err
}

// lock locks the state file for this process. The daemon's lock file beside its socket does not suffice: it may have
// been removed, and a daemon whose socket systemd opened has none.
func lock(fd int, path string) error {
	l := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(uintptr(fd), unix.F_SETLK, &l); !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EACCES) {
		return nil // locked, or the filesystem has no locks
	}
	who := "another daemon"
	if l = (unix.Flock_t{Type: unix.F_WRLCK}); unix.FcntlFlock(uintptr(fd), unix.F_GETLK, &l) == nil && l.Pid > 0 {
		who += fmt.Sprintf(", pid %d", l.Pid)
	}
	return fmt.Errorf("%s is in use by %s: stop that one first, programs go on meanwhile", path, who)
}

// Anonymous returns a state file that is only in memory, for a machine whose runtime directory cannot be written.
// Nothing in it survives the daemon. Volatile returns why.
func Anonymous(why error) (*File, error) {
	file, err := anonymous(fileSize, why)
	if err != nil {
		return nil, err
	}
	f := newFile(file, true)
	f.volatile = why
	if err := f.openTables(func(t *tableFile) (*mapping, error, error) { return t.inMemory(why) }); err != nil {
		return nil, err
	}
	return f, nil
}

// Aside returns where Open put a state file that it could not read; "": there was none.
func (f *File) Aside() string { return f.aside }

// newFile finds the tables in a mapping. In a fresh mapping it first writes the header, and the magic number last. If
// the daemon is killed in between, the next daemon sets the file aside.
func newFile(file *mapping, fresh bool) *File {
	head := (*header)(unsafe.Pointer(&file.mem[0]))
	f := &File{file: file}
	if fresh {
		*head = newHeader()
		atomic.StoreUint64(&head.Magic, fileMagic)
	}
	at := f.Jobs.lay(file, headerSize, MaxJobs, &head.HighJob)
	at = f.Sessions.lay(file, at, MaxSessions, &head.HighSession)
	at = f.Leases.lay(file, at, MaxLeases, &head.HighLease)
	at = f.Tickets.lay(file, at, MaxTickets, &head.HighTicket)
	at = f.Limits.lay(file, at, MaxLimits, &head.HighLimit)
	at = f.Threads.lay(file, at, MaxThreads, &head.HighThread)
	f.Cgroups.lay(file, at, MaxCgroups, &head.HighCgroup)
	f.Threads.Each(func(i int, t *Thread) { // drop threads without a lease: the file may be damaged
		if t.Lease >= *f.Leases.high || f.Leases.rows[t.Lease].Live != 1 {
			f.Threads.Free(i)
		}
	})
	return f
}

// Volatile returns why the records would not survive the daemon, such as a full filesystem; nil: they would.
func (f *File) Volatile() error { return f.volatile }

// Unlock lets another process open the file while this process cannot call Close because a thread hangs. Afterwards
// nothing may be written to the file.
func (f *File) Unlock() {
	if fd := f.file.fd; fd >= 0 {
		_ = unix.FcntlFlock(uintptr(fd), unix.F_SETLK, &unix.Flock_t{Type: unix.F_UNLCK})
	}
}

// HasBindings reports whether the last daemon left bindings.
func (f *File) HasBindings() (has bool) {
	f.Bindings.Each(func(int, *Binding) { has = true })
	return has
}

// LostBindings returns why bindings of the last daemon are lost, or those of this daemon will be; nil: none are.
func (f *File) LostBindings() error { return f.lost }

// HasSuspensions reports whether the last daemon left jobs that it had asked to give their memory back.
func (f *File) HasSuspensions() (has bool) {
	f.Suspensions.Each(func(int, *Suspension) { has = true })
	return has
}

// LostSuspensions returns why the records of suspended jobs are lost, or those of this daemon will be; nil: none are.
func (f *File) LostSuspensions() error { return f.lostSuspension }

// Close unmaps the file; the content stays.
func (f *File) Close() error { return errors.Join(f.asked.close(), f.bound.close(), f.file.close()) }
