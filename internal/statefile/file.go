package statefile

// This file opens the state file and finds the tables in it.

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
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
		err = &unreadable{kindForeign, fmt.Sprintf("%s is not ours: %v", path, why)}
	}
	return file, fresh, err
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
	f.Threads.Each(func(i int, t *Thread) { // the file may be damaged
		if t.Lease >= *f.Leases.high || f.Leases.rows[t.Lease].Live != 1 {
			f.Threads.Free(i)
		}
	})
	return f
}

// Volatile returns why the records would not survive the daemon, such as a full filesystem; nil: they would.
func (f *File) Volatile() error { return f.volatile }

// Unlock lets another process open the file while this one cannot call Close, because a thread hangs. Nothing may be written to the file
// afterwards.
func (f *File) Unlock() {
	if fd := f.file.fd; fd >= 0 {
		_ = unix.FcntlFlock(uintptr(fd), unix.F_SETLK, &unix.Flock_t{Type: unix.F_UNLCK})
	}
}

// Close unmaps the file; the content stays.
func (f *File) Close() error { return f.file.close() }
