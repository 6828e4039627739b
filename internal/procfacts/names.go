package procfacts

// This file finds and caches the names of users and groups, with an upper bound for the wait. facts.go calls it.

import (
	"cmp"
	"os/user"
	"strconv"
	"sync"
	"time"
)

const (
	namesTTL     = 5 * time.Minute
	namesRetry   = 10 * time.Second // interval after a lookup without an answer
	namesTimeout = 100 * time.Millisecond
	// namesPatience is the longest wait for names that rules use, because a rule that names a user cannot match while
	// the name is unknown. While a lookup is known to be slow, namesTimeout takes its place.
	namesPatience = time.Second
	maxNames      = 4096 // cached names of users, and as many of groups
	maxLookups    = 16   // simultaneous lookups
)

// nameSources are the functions that find the name of a number, by database.
type nameSources [2]func(id string) (string, error)

// systemNames ask the machine's user database, which may be on the network.
var systemNames = nameSources{usersDB: userName, groupsDB: groupName}

// userName looks a user's name up.
func userName(uid string) (string, error) {
	u, err := user.LookupId(uid)
	if err != nil {
		return "", err
	}
	return u.Username, nil
}

// groupName looks a group's name up.
func groupName(gid string) (string, error) {
	g, err := user.LookupGroupId(gid)
	if err != nil {
		return "", err
	}
	return g.Name, nil
}

// names caches the answers of the user database and bounds the wait for them. Its methods are safe for concurrent
// use.
type names struct {
	sources nameSources
	now     func() time.Time
	slots   chan struct{} // one element for each lookup under way

	mu    sync.Mutex // guards the fields below, and those of each name
	known [2]map[uint32]*name
	late  int // number of lookups under way for which a caller has waited too long
}

// Indices of the two databases in nameSources and in names.known.
const (
	usersDB = iota
	groupsDB
)

// name is a cached name, a lookup under way, or both. names.mu guards it.
type name struct {
	text    string
	until   time.Time     // time of the next lookup
	pending chan struct{} // closed by the lookup under way when it ends; nil: none
	late    bool          // the lookup counts in names.late
}

// newNames returns an empty cache.
func newNames(sources nameSources, now func() time.Time) *names {
	return &names{
		sources: sources, now: now,
		slots: make(chan struct{}, maxLookups),
		known: [2]map[uint32]*name{{}, {}},
	}
}

// user returns a user's name, or the number.
func (n *names) user(uid uint32, patience time.Duration) string { return n.get(usersDB, uid, patience) }

// groups returns the names of the first group and then of the others, each once.
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

// get returns a name. A known name is returned at once, even if a new lookup is due. Otherwise get waits up to
// patience, once for each lookup, and then returns the number.
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
	if e.pending == nil && n.now().After(e.until) {
		n.askLocked(db, number, e)
	}
	if e.text != "" {
		return e.text
	}
	pending := e.pending
	if pending == nil || e.late {
		return number // too many lookups hang, or this one does
	}
	if n.late > 0 {
		patience = min(patience, namesTimeout)
	}
	n.mu.Unlock()
	_, answered := receiveWithin(pending, patience)
	n.mu.Lock()
	if !answered && e.pending == pending && !e.late {
		e.late = true
		n.late++
	}
	return cmp.Or(e.text, number)
}

// askLocked starts a lookup unless too many are under way. If the lookup fails, a known name stays.
func (n *names) askLocked(db int, number string, e *name) {
	select {
	case n.slots <- struct{}{}:
	default:
		return
	}
	pending := make(chan struct{})
	e.pending = pending
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
		e.text, e.pending = text, nil
		n.mu.Unlock()
		close(pending)
		<-n.slots
	}()
}
