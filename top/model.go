package top

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/gpuarb/gpuarb/figures"
	"github.com/gpuarb/gpuarb/report"
)

const (
	patience = 10 * time.Second // that the daemon has for an answer
	slow     = 3 * time.Second  // an answer that takes longer is said to be missing
	noteTime = 6 * time.Second  // that a message stands

	costs   = 50               // a look is followed by so many times the processor time that it took: 2 % of a core
	longest = 10 * time.Second // that a look is put off for what the last one cost
)

// Options say how the screen begins.
type Options struct {
	UID      uint32 // who looks: the rows of others are dimmed, but to root
	ASCII    bool   // the terminal cannot show more
	Compact  bool   // one line for each device, and no graph
	Tree     bool
	Sort     string // one of SortKeys; "": by use
	Filter   string
	Interval time.Duration // between two snapshots
	Suspend  bool          // a shell is there that would resume it
	// Spent is the processor time of this process so far: the more a look costs, the longer the next
	// one is put off. nil: Interval holds, whatever it costs.
	Spent func() time.Duration
}

// page is what stands below the title.
type page int

const (
	table page = iota
	details
	help
)

// asks is what a dialog asks for.
type asks int

const (
	nothing   asks = iota
	forFilter      // the text that rows must have
	forLimit       // LIMIT=VALUE
	forSignal      // which one
	forYes         // before anything is changed
)

// dialog is the question at the foot of the screen.
type dialog struct {
	asks   asks
	whose  string // whom it concerns: "ann's python3 train.py"
	action Action
	input  string
	wrong  string // with what was typed
}

// What happens, beside keys, the mouse and the size of the terminal.
type (
	tick     time.Time
	snapshot struct {
		state figures.Snapshot
		err   error
		at    time.Time
	}
	done struct {
		action Action
		err    error
	}
)

// Model is the screen. It is not safe for concurrent use.
type Model struct {
	daemon  Daemon
	options Options
	glyphs  glyphs
	once    bool // it is printed, not drawn

	state     figures.Snapshot
	histories map[string]*history // by device
	asked     time.Time           // since when an answer is missing; zero: none is
	answered  time.Time           // when the state came; zero: never yet
	away      string              // why there is none; "": there is
	now       time.Time
	spent     time.Duration // by Options.Spent, when the last look began

	sort    int // place in keys
	turned  bool
	own     bool   // only rows of who looks
	filter  string // as typed
	rows    []row  // that pass the filter, sorted
	chosen  id     // the selected row
	at      int    // its place in rows
	ended   bool   // it is gone, while its details are shown
	first   int    // row on the screen
	page    page
	line1   int // of the details on the screen
	dialog  dialog
	note    string
	noteEnd time.Time
	mouse   bool

	width, height int
}

// New makes a screen that has heard nothing yet.
func New(daemon Daemon, options Options) *Model {
	m := &Model{daemon: daemon, options: options, glyphs: unicodeGlyphs, histories: map[string]*history{}, filter: options.Filter,
		sort: keyNamed(cmp.Or(options.Sort, "used")), mouse: true, width: 80, height: 24}
	if options.ASCII {
		m.glyphs = asciiGlyphs
	}
	return m
}

// show makes a state the one that is drawn.
func (m *Model) show(state figures.Snapshot) {
	m.state = state
	m.arrange()
}

// arrange finds the rows that there are to see, and keeps the one that is selected.
func (m *Model) arrange() {
	rows := rowsOf(&m.state)
	filter := strings.ToLower(m.filter)
	rows = slices.DeleteFunc(rows, func(r row) bool {
		return !r.matches(filter) || m.own && (!r.owned || r.uid != m.options.UID)
	})
	inOrder(rows, m.sortKey(), m.turned)
	if m.options.Tree {
		rows = tree(&m.state, rows, m.glyphs, m.sortKey(), m.turned)
	}
	m.rows = rows
	at := m.find(m.chosen)
	if at < 0 && m.page == details {
		m.ended = true // of no other row are the details shown instead
		return
	}
	if at >= 0 {
		m.at, m.ended = at, false
	}
	m.choose(m.at)
}

// find is the place of a row; else of one of the same process, whose request was granted or whose
// lease ended; -1: there is none.
func (m *Model) find(wanted id) int {
	at := slices.IndexFunc(m.rows, func(r row) bool { return r.id() == wanted })
	if at < 0 && wanted.is != aJob && wanted != (id{}) {
		at = slices.IndexFunc(m.rows, func(r row) bool { return r.is != aJob && r.pid == wanted.pid && r.job == wanted.job })
	}
	return at
}

func (m *Model) sortKey() key { return keys[m.sort] }

// choose selects a row by its place.
func (m *Model) choose(at int) {
	m.ended = false
	m.at = max(0, min(at, len(m.rows)-1))
	m.chosen = id{}
	if m.at < len(m.rows) {
		m.chosen = m.rows[m.at].id()
	}
}

// selected is the row that is selected; nil: there is none.
func (m *Model) selected() *row {
	if m.ended || m.at >= len(m.rows) {
		return nil
	}
	return &m.rows[m.at]
}

// say shows a message for a while.
func (m *Model) say(text string) { m.note, m.noteEnd = text, m.now.Add(noteTime) }

// oneLine is an error in one line, fit for a terminal.
func oneLine(err error) string {
	return report.Escape(strings.Join(strings.Fields(strings.ToValidUTF8(err.Error(), "?")), " "))
}
