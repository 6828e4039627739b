package procfacts

import (
	"cmp"
	"os/user"
	"strconv"
	"sync"
	"time"
)

const (
	namesTTL     = 5 * time.Minute
	namesRetry   = 10 * time.Second // after a question that had no answer, which may be the user database's failure
	namesTimeout = 100 * time.Millisecond
	// namesPatience is for what rules go by: a program whose user is not known yet is under none that names him. It is had
	// only while no question is known to take longer.
	namesPatience = time.Second
	maxNames      = 4096 // of users and of groups each
	maxLookups    = 16   // under way at once; the user database may not answer
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

// names remembers what the user database says, and does not wait long for it.
// Its methods are safe for concurrent use.
type names struct {
	sources nameSources
	now     func() time.Time
	slots   chan struct{} // one token per lookup under way

	mu    sync.Mutex
	known [2]map[uint32]*name
	late  int // questions under way for whose answer somebody has waited in vain
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
	late  bool          // it is one of names.late
}

func newNames(sources nameSources, now func() time.Time) *names {
	return &names{
		sources: sources, now: now,
		slots: make(chan struct{}, maxLookups),
		known: [2]map[uint32]*name{{}, {}},
	}
}

func (n *names) user(uid uint32, patience time.Duration) string { return n.get(usersDB, uid, patience) }

// groups names the first and then the others, each once.
func (n *names) groups(first uint32, others []uint32, patience time.Duration) []string {
	seen := make(map[uint32]bool, len(others)+1)
	var list []string
	for _, gid := range append([]uint32{first}, others...) {
		if !seen[gid] {
			seen[gid] = true
			list = append(list, n.get(groupsDB, gid, patience))
		}
	}
	return list
}

// get returns a name: at once where it is known, even if it should be asked for
// again; after some patience at most where it is not, which is had once for each question.
func (n *names) get(db int, id uint32, patience time.Duration) string {
	number := strconv.FormatUint(uint64(id), 10)
	n.mu.Lock()
	defer n.mu.Unlock()
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
	if e.text != "" {
		return e.text
	}
	asked := e.asked
	if asked == nil || e.late {
		return number // too many lookups are stuck, or this one is
	}
	if n.late > 0 {
		patience = min(patience, namesTimeout)
	}
	n.mu.Unlock()
	_, answered := receive(asked, patience)
	n.mu.Lock()
	if !answered && e.asked == asked && !e.late {
		e.late = true
		n.late++
	}
	return cmp.Or(e.text, number)
}

// askLocked starts a lookup, unless too many are under way. A name that is known stays where there is no answer now.
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
		n.mu.Lock()
		e.until = n.now().Add(namesTTL)
		if err != nil || text == "" {
			text, e.until = cmp.Or(e.text, number), n.now().Add(namesRetry)
		}
		if e.late {
			e.late = false
			n.late--
		}
		e.text, e.asked = text, nil
		n.mu.Unlock()
		close(asked)
		<-n.slots
	}()
}
