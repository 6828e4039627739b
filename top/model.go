package top

import (
	"context"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/gpuarb/gpuarb/accounting"
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
	Interval time.Duration  // between two snapshots
	Zone     *time.Location // of the clock
	Suspend  bool           // a shell is there that would resume it
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

// Model is the screen. It is not safe for concurrent use.
type Model struct {
	daemon  Daemon
	options Options
	glyphs  glyphs
	once    bool // it is printed, not drawn

	state     accounting.Snapshot
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
		sort: max(0, keyNamed("used")), mouse: true, width: 80, height: 24}
	if options.ASCII {
		m.glyphs = asciiGlyphs
	}
	if k := keyNamed(options.Sort); k >= 0 {
		m.sort = k
	}
	if m.options.Interval <= 0 {
		m.options.Interval = time.Second
	}
	if m.options.Zone == nil {
		m.options.Zone = time.Local
	}
	return m
}

// What happens, beside keys, the mouse and the size of the terminal.
type (
	tick     time.Time
	snapshot struct {
		state accounting.Snapshot
		err   error
		at    time.Time
	}
	done struct {
		action Action
		err    error
	}
)

// Init asks the daemon for the first time.
func (m *Model) Init() tea.Cmd {
	m.now = time.Now()
	m.pause() // what was spent on the start is no look's
	return tea.Batch(m.ask(), m.nextTick())
}

func (m *Model) nextTick() tea.Cmd {
	return tea.Tick(m.pause(), func(t time.Time) tea.Msg { return tick(t) })
}

// pause is the time until the next look: the interval, or longer where looks are dear.
func (m *Model) pause() time.Duration {
	if m.options.Spent == nil {
		return m.options.Interval
	}
	before := m.spent
	m.spent = m.options.Spent()
	return max(m.options.Interval, min(costs*(m.spent-before), longest))
}

// ask asks for the state, unless an answer is missing still.
func (m *Model) ask() tea.Cmd {
	if !m.asked.IsZero() {
		return nil
	}
	m.asked = m.now
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		state, err := m.daemon.Snapshot(ctx)
		return snapshot{state, err, time.Now()}
	}
}

// Update takes in what happened.
func (m *Model) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	switch message := message.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = max(1, message.Width), max(1, message.Height)
	case tick:
		m.now = time.Time(message)
		return m, tea.Batch(m.ask(), m.nextTick())
	case snapshot:
		m.take(message)
	case done:
		m.say("done: " + message.action.what(&m.state))
		if message.err != nil {
			m.say(oneLine(message.err))
		}
		return m, m.ask() // what it led to shows at once
	case tea.PasteMsg:
		m.dialog.insert(message.Content)
		m.typed()
	case tea.KeyPressMsg:
		return m, m.press(message.String(), message.Text)
	case tea.MouseClickMsg:
		m.click(message.X, message.Y)
	case tea.MouseWheelMsg:
		m.wheel(message.Button == tea.MouseWheelUp)
	}
	return m, nil
}

// take takes an answer, or that there is none: then the last one stays.
func (m *Model) take(answer snapshot) {
	m.asked, m.now = time.Time{}, answer.at
	if answer.err != nil {
		m.away = oneLine(answer.err)
		return
	}
	wasAway := m.away != ""
	m.away, m.answered = "", answer.at
	m.remember(&answer.state, wasAway)
	m.show(answer.state)
}

// remember adds a state to the histories of the devices.
func (m *Model) remember(state *accounting.Snapshot, wasAway bool) {
	for i := range state.Devices {
		d := &state.Devices[i]
		name := d.UUID + d.PCI
		if m.histories[name] == nil {
			m.histories[name] = &history{}
		}
		m.histories[name].add(m.now, taken(d), wasAway)
	}
}

// show makes a state the one that is drawn.
func (m *Model) show(state accounting.Snapshot) {
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
