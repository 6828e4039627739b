package top

// This file owns the Model: its state, and the selection of a row. update.go receives snapshots and
// keys, screen.go draws, rows.go makes rows of a snapshot.

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/internal/report"
)

const (
	daemonTimeout = 10 * time.Second // time limit of an answer of the daemon
	slowAnswer    = 3 * time.Second  // after this time a missing answer is shown
	noteDuration  = 6 * time.Second  // how long a message is shown

	costFactor = 50               // a pause is at least 50 times the processor time of the last update, so that updates take at most 2 % of a core
	maxPause   = 10 * time.Second // longest pause because of the cost of an update
)

// Options say how the screen begins.
type Options struct {
	UID      uint32 // user of the screen: rows of other users are dimmed, except for root
	ASCII    bool   // the terminal can show only ASCII
	Compact  bool   // one line for each device, and no graph
	Tree     bool
	Sort     string // one of SortKeys; "": by use
	Filter   string
	Interval time.Duration // time between two snapshots
	Suspend  bool          // a shell could resume the process
	// Spent returns the processor time of this process so far. The more an update costs, the longer
	// the pause after it. nil: the pause is always Interval.
	Spent func() time.Duration
}

// page says what the screen shows below the title: the table of rows, the details of the selected
// row, or the help.
type page int

const (
	table page = iota
	details
	help
)

// prompt is a kind of question that a dialog asks.
type prompt int

const (
	noPrompt      prompt = iota
	filterPrompt         // text that rows must contain
	limitPrompt          // LIMIT=VALUE
	signalPrompt         // a signal
	confirmPrompt        // a confirmation before the change
)

// dialog is the question at the foot of the screen.
type dialog struct {
	prompt prompt
	whose  string // user and command of the row: "ann's python3 train.py"
	action Action
	input  string
	wrong  string // what is wrong with the input; "": nothing
}

// Messages of the program, in addition to keys, the mouse and the size of the terminal.
type (
	tick     time.Time
	snapshot struct {
		state figures.Snapshot
		err   error
		at    time.Time
	}
	actionDone struct {
		action Action
		err    error
	}
)

// Model is the screen. It is not safe for concurrent use.
type Model struct {
	daemon  Daemon
	options Options
	glyphs  glyphs
	once    bool // the screen is printed, not drawn

	state     figures.Snapshot
	histories map[string]*history // by UUID and PCI address of the device
	asked     time.Time           // time of the question that has no answer yet; zero: none
	answered  time.Time           // time of the last answer; zero: no answer yet
	away      string              // why the daemon does not answer; "": it answers
	now       time.Time
	spent     time.Duration // Options.Spent when the last update began

	sort     int // index in keys
	reversed bool
	ownOnly  bool           // show only rows of Options.UID
	filter   string         // text that was typed
	rows     []row          // rows that pass the filter, sorted
	widest   map[string]int // width of the longest text in a column, by title
	chosen   id             // selected row
	at       int            // index of the selected row in rows
	ended    bool           // the selected row has ended while its details are shown
	first    int            // index of the first row on the screen
	page     page
	scroll   int // first line of the page that is on the screen
	dialog   dialog
	note     string
	noteEnd  time.Time
	mouse    bool

	width, height int
}

// New makes a screen that has no snapshot yet.
func New(daemon Daemon, options Options) *Model {
	m := &Model{daemon: daemon, options: options, glyphs: unicodeGlyphs, histories: map[string]*history{}, filter: options.Filter,
		sort: keyNamed(cmp.Or(options.Sort, "used")), mouse: true, width: 80, height: 24}
	if options.ASCII {
		m.glyphs = asciiGlyphs
	}
	return m
}

// narrow is the width below which the screen is compact, and the table has few columns.
const narrow = 60

// compact reports whether each device has one line, and no graph.
func (m *Model) compact() bool { return m.options.Compact || m.width < narrow }

// show makes state the snapshot that is drawn.
func (m *Model) show(state figures.Snapshot) {
	m.state = state
	for i := range m.state.Devices {
		if d := &m.state.Devices[i]; d.RecentPercent == nil { // an older daemon, which does not tell what is free
			d.Free = d.Capacity.Less(d.Committed)
		}
	}
	m.updateRows()
}

// updateRows computes the rows from the snapshot and the filter, and keeps the selected row.
func (m *Model) updateRows() {
	rows := rowsOf(&m.state)
	filter := strings.ToLower(m.filter)
	rows = slices.DeleteFunc(rows, func(r row) bool {
		return !r.matches(filter) || m.ownOnly && (!r.owned || r.uid != m.options.UID)
	})
	sortRows(rows, m.sortKey(), m.reversed)
	if m.options.Tree {
		rows = tree(&m.state, rows, m.glyphs, m.sortKey(), m.reversed)
	}
	m.rows = rows
	at := m.find(m.chosen)
	if at < 0 && m.page == details {
		m.ended = true // do not show the details of another row instead
		return
	}
	if at >= 0 {
		m.at, m.ended = at, false
	}
	m.choose(m.at)
}

// find returns the index of a row. If the row has gone, because its request was granted or its
// lease ended, it returns another row of the process; -1: none.
func (m *Model) find(wanted id) int {
	at := slices.IndexFunc(m.rows, func(r row) bool { return r.id() == wanted })
	if at < 0 && wanted.kind != jobRow && wanted != (id{}) {
		at = slices.IndexFunc(m.rows, func(r row) bool { return r.kind != jobRow && r.pid == wanted.pid && r.job == wanted.job })
	}
	return at
}

func (m *Model) sortKey() key { return keys[m.sort] }

// choose selects a row by its index.
func (m *Model) choose(at int) {
	m.ended = false
	m.at = max(0, min(at, len(m.rows)-1))
	m.chosen = id{}
	if m.at < len(m.rows) {
		m.chosen = m.rows[m.at].id()
	}
}

// selected returns the selected row; nil: none.
func (m *Model) selected() *row {
	if m.ended || m.at >= len(m.rows) {
		return nil
	}
	return &m.rows[m.at]
}

// say shows a message for noteDuration.
func (m *Model) say(text string) { m.note, m.noteEnd = text, m.now.Add(noteDuration) }

// oneLine returns an error as one line that is safe for a terminal.
func oneLine(err error) string {
	return report.Escape(strings.Join(strings.Fields(strings.ToValidUTF8(err.Error(), "?")), " "))
}
