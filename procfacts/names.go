package procfacts

import (
	"os/user"
	"strconv"
	"sync"
	"time"
)

const (
	namesTTL     = 5 * time.Minute
	namesTimeout = 100 * time.Millisecond
	maxNames     = 4096 // of users and of groups each
	maxLookups   = 16   // under way at once; the user database may not answer
)

// nameSources tell the name of a number, by database.
type nameSources [2]func(id string) (string, error)

// systemNames ask the machine's user database, which may be on the network.
var systemNames = nameSources{usersDB: userName, groupsDB: groupName}

func userName(uid string) (string, error) {
	u, err := user.LookupId(uid)
	if err != nil {
		return "", err
	}
	return u.Username, nil
}

func groupName(gid string) (string, error) {
	g, err := user.LookupGroupId(gid)
	if err != nil {
		return "", err
	}
	return g.Name, nil
}

// UserName is a user's name, or the number where there is none, or the user database does not
// answer at once.
func (r *Reader) UserName(uid uint32) string { return r.names.user(uid) }

// names remembers what the user database says, and does not wait long for it.
// Its methods are safe for concurrent use.
type names struct {
	sources nameSources
	now     func() time.Time
	slots   chan struct{} // one token per lookup under way

	mu    sync.Mutex
	known [2]map[uint32]*name
}

// The two databases.
const (
	usersDB = iota
	groupsDB
)

// name is an answer, or a question under way. Its fields are names.mu's.
type name struct {
	text  string
	until time.Time     // when to ask again
	asked chan struct{} // closed when the answer is there; nil if nobody asks
}

func newNames(sources nameSources, now func() time.Time) *names {
	return &names{
		sources: sources, now: now,
		slots: make(chan struct{}, maxLookups),
		known: [2]map[uint32]*name{{}, {}},
	}
}

func (n *names) user(uid uint32) string { return n.get(usersDB, uid) }

// groups names the first and then the others, each once.
func (n *names) groups(first uint32, others []uint32) []string {
	seen := make(map[uint32]bool, len(others)+1)
	var list []string
	for _, gid := range append([]uint32{first}, others...) {
		if !seen[gid] {
			seen[gid] = true
			list = append(list, n.get(groupsDB, gid))
		}
	}
	return list
}

// get returns a name: at once where it is known, even if it should be asked for
// again; after namesTimeout at most where it is not.
func (n *names) get(db int, id uint32) string {
	number := strconv.FormatUint(uint64(id), 10)
	n.mu.Lock()
	e := n.known[db][id]
	if e == nil {
		if len(n.known[db]) >= maxNames {
			clear(n.known[db])
		}
		e = &name{}
		n.known[db][id] = e
	}
	if e.asked == nil && n.now().After(e.until) {
		n.askLocked(db, number, e)
	}
	text, asked := e.text, e.asked
	n.mu.Unlock()
	if text != "" {
		return text
	}
	if asked == nil {
		return number // too many lookups are stuck
	}
	if _, answered := receive(asked, namesTimeout); !answered {
		return number
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return e.text
}

// askLocked starts a lookup, unless too many are under way.
func (n *names) askLocked(db int, number string, e *name) {
	select {
	case n.slots <- struct{}{}:
	default:
		return
	}
	asked := make(chan struct{})
	e.asked = asked
	go func() {
		text, err := n.sources[db](number)
		if err != nil || text == "" {
			text = number
		}
		n.mu.Lock()
		e.text, e.until, e.asked = text, n.now().Add(namesTTL), nil
		n.mu.Unlock()
		close(asked)
		<-n.slots
	}()
}
