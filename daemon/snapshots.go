package daemon

import (
	"encoding/json"
	"os"
	"sync"
	"time"

	"github.com/gpuarb/gpuarb/config"
	"github.com/gpuarb/gpuarb/daemon/fair"
	"github.com/gpuarb/gpuarb/figures"
	"github.com/gpuarb/gpuarb/ipc"
)

const (
	// snapshotTimeout is how long a client may take to read a snapshot.
	snapshotTimeout = 10 * time.Second
	// readersPerUser is how many of a user's clients are sent one at the same time:
	// each slow reader may keep a text of its own in memory.
	readersPerUser = 32
)

// snapshots makes the state, and the texts of it that clients ask for.
type snapshots struct {
	states  fair.Paced[figures.Snapshot]
	leases  fair.Paced[figures.Snapshot]
	json    fair.Paced[text] // of all that there is
	metrics fair.Paced[text]

	mu      sync.Mutex
	readers map[uint32]*audience // by user
}

// audience is what a user's clients share that are sent a snapshot, or events.
type audience struct {
	places  chan struct{}    // a token for each that is sent a snapshot
	follows chan struct{}    // and for each that is sent events
	texts   fair.Paced[text] // where he may not see all
}

// text is what was made for a client to read.
type text struct {
	bytes []byte
	err   error
}

// audienceOf is what a user's clients share.
func (s *snapshots) audienceOf(uid uint32) *audience {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.readers == nil {
		s.readers = map[uint32]*audience{}
	}
	r := s.readers[uid]
	if r == nil {
		r = &audience{places: make(chan struct{}, readersPerUser), follows: make(chan struct{}, followersPerUser)}
		s.readers[uid] = r
	}
	return r
}

// hidesCommands reports whether a reader is shown only the command lines of that user's own programs.
func (d *Daemon) hidesCommands(reader uint32) bool {
	return d.config.Load().Commands == config.CommandsOwn && !isAdmin(reader)
}

// confined is the user number under which all admins read that are not privileged, as root in containers. No user has this
// number. The process that serves the page reads under another one (Stranger), so that it does not share their turn.
const confined = figures.Stranger - 1

// reader returns the user whose command lines a client is shown. It is the client's own user, with two exceptions that see no command
// line: confined for root in a container, and Stranger for the process that serves the page, because all users can see the page. In a
// user's own daemon the second exception does not hold, since all programs are that user's.
func (cl *client) reader() uint32 {
	peer := cl.conn.Peer()
	if isAdmin(peer.UID) && !peer.Privileged {
		return confined
	}
	if os.Geteuid() == 0 && cl.d.page.Is(peer.PID) {
		return figures.Stranger
	}
	return peer.UID
}

// snapshot answers with the whole state as JSON.
func (cl *client) snapshot(m ipc.Message) error {
	cl.looked()
	return cl.sendText(m, func(r *audience) text {
		if uid := cl.reader(); cl.d.hidesCommands(uid) {
			return r.texts.Get(func() text { return textOf(cl.d.state().WithOwnCommands(uid)) })
		}
		return cl.d.texts.json.Get(func() text { return textOf(cl.d.snapshot()) })
	})
}

func textOf(s figures.Snapshot) (t text) {
	t.bytes, t.err = json.Marshal(s)
	return t
}

// sendText answers with a text that is made for all who wait for it, and sent in parts.
func (cl *client) sendText(m ipc.Message, get func(*audience) text) error {
	uid := cl.reader() // and the page waits for no other process of its user
	readers := cl.d.texts.audienceOf(uid)
	late := time.NewTimer(snapshotTimeout)
	defer late.Stop()
	select {
	case readers.places <- struct{}{}:
	case <-late.C:
		return refused(ipc.StatusTooMany, "%d clients of user %d are reading snapshots, and do not come to an end", readersPerUser, uid)
	}
	defer func() { <-readers.places }()
	made := get(readers)
	if made.err != nil {
		return made.err
	}
	return cl.conn.ReplySnapshot(m.Header, made.bytes, snapshotTimeout)
}
