package daemon

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/ipc"
)

// The daemon can be short of descriptors, or of the kernel's memory: somebody has lowered
// its limit, or the machine has no more. Who is there is served without any. Who comes
// waits, here or in the socket's queue, until there are some again. What could not be
// asked about a process is not known, and is asked again.

const (
	// roomPatience is how long a client waits for descriptors once it has some, and hears that
	// it waits; resumePatience is for one that cannot be told, less than it waits for an answer.
	roomPatience   = 30 * time.Second
	resumePatience = 3 * time.Second
	// roomEvery is the pause between two attempts.
	roomEvery = 50 * time.Millisecond
	// sayAgain is how long the daemon is silent about a shortage that it told of.
	sayAgain = time.Minute
	// spareFiles are kept for what the daemon itself opens for a moment.
	spareFiles = 8
)

// short tells of a shortage, once and not for each that it hits.
func (d *Daemon) short(err error) {
	now := d.now().UnixNano()
	last := d.shortAt.Load()
	if last != 0 && now-last < int64(sayAgain) || !d.shortAt.CompareAndSwap(last, now) {
		return
	}
	var lim unix.Rlimit
	_ = unix.Getrlimit(unix.RLIMIT_NOFILE, &lim)
	d.log.Warn("no descriptors left: programs that run go on, others wait to be let in. Raise the daemon's limit of "+
		"open files (LimitNOFILE= of its unit)", "limit", lim.Cur, "err", err)
}

// whenRoom does for a client what takes descriptors, and waits for them where there are
// none. Others of its process and user are not held up. The caller has no lock.
func whenRoom[T any](cl *client, h ipc.Header, f func() (T, error)) (v T, err error) {
	if v, err = f(); ipc.IsShort(err) {
		err = cl.awaitRoom(h, err, func() (err error) { v, err = f(); return err })
	}
	return v, err
}

// awaitRoom tries what failed for want of descriptors until it fails for that no more. It is apart for what it
// needs on the stack.
func (cl *client) awaitRoom(h ipc.Header, err error, f func() error) error {
	d := cl.d
	late := d.after(resumePatience)
	if h.Type != ipc.TypeResume {
		late = d.after(roomPatience)
		// Who hears nothing takes the daemon for gone, and goes on without.
		_ = cl.conn.Notice(h, &ipc.WaitingReply{Text: ipc.MakeText("waits for the daemon to have descriptors left")})
	}
	cl.turn.Out(func() {
		for ipc.IsShort(err) {
			d.short(err)
			select {
			case <-d.after(roomEvery):
				err = f()
			case <-late:
				err = refused(ipc.StatusTooMany, ipc.NoRoom)
			case <-d.ctx.Done():
				err = refused(ipc.StatusShuttingDown, "the daemon is stopping")
			}
		}
	})
	return err
}

// spare keeps some descriptors for what the daemon itself opens for a moment, whoever
// else takes all that there are. Its lock may be taken with the daemon's held.
type spare struct {
	mu  sync.Mutex
	fds []int
}

// take opens those that are not there. While one was lent, others may have had the rest.
func (s *spare) take() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.openAll()
}

// openAll wants s.mu to be held, as closeAll does.
func (s *spare) openAll() {
	for len(s.fds) < spareFiles {
		fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return
		}
		s.fds = append(s.fds, fd)
	}
}

func (s *spare) give() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closeAll()
}

func (s *spare) closeAll() {
	for _, fd := range s.fds {
		closeFD(fd)
	}
	s.fds = nil
}

// newPage makes a lease page, and not with a descriptor that is lent at the moment: it would
// be lent for good.
func (s *spare) newPage() (*ipc.LeasePage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return ipc.NewPage()
}

// lend does f, and where that needs a descriptor, with those that are kept.
func (s *spare) lend(f func() error) error {
	err := f()
	if ipc.IsShort(err) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.closeAll()
		err = f()
		s.openAll()
	}
	return err
}
