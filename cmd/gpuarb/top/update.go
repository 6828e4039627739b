package top

// This file receives messages of the terminal library: ticks, answers of the daemon, keys and
// clicks. keys.go and dialog.go handle the keys.

import (
	"context"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// Init asks the daemon for the first time.
func (m *Model) Init() tea.Cmd {
	m.now = time.Now()
	m.pause() // leave out the time that was spent on the start
	return tea.Batch(m.ask(), m.nextTick())
}

func (m *Model) nextTick() tea.Cmd {
	return tea.Tick(m.pause(), func(t time.Time) tea.Msg { return tick(t) })
}

// pause returns the time until the next update: the interval, or longer if updates are expensive.
func (m *Model) pause() time.Duration {
	if m.options.Spent == nil {
		return m.options.Interval
	}
	before := m.spent
	m.spent = m.options.Spent()
	return max(m.options.Interval, min(costFactor*(m.spent-before), maxPause))
}

// ask asks for the state, unless an earlier question has no answer yet.
func (m *Model) ask() tea.Cmd {
	if !m.asked.IsZero() {
		return nil
	}
	m.asked = m.now
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(context.Background(), daemonTimeout)
		defer cancel()
		state, err := m.daemon.Snapshot(ctx)
		return snapshot{state, err, time.Now()}
	}
}

// Update handles a message.
func (m *Model) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	switch message := message.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = max(1, message.Width), max(1, message.Height)
	case tick:
		m.now = time.Time(message)
		return m, tea.Batch(m.ask(), m.nextTick())
	case snapshot:
		m.take(message)
	case actionDone:
		m.say("done: " + message.action.description(&m.state))
		if message.err != nil {
			m.say(oneLine(message.err))
		}
		return m, m.ask() // so that the screen shows the effect at once
	case tea.PasteMsg:
		m.dialog.insert(message.Content)
		m.applyInput()
	case tea.KeyPressMsg:
		return m, m.pressKey(message.String(), message.Text)
	case tea.MouseClickMsg:
		m.click(message.X, message.Y)
	case tea.MouseWheelMsg:
		m.wheel(message.Button == tea.MouseWheelUp)
	}
	return m, nil
}

// take stores an answer of the daemon. If the daemon did not answer, the last answer stays.
func (m *Model) take(dialogKey snapshot) {
	m.asked, m.now = time.Time{}, dialogKey.at
	if dialogKey.err != nil {
		m.away = oneLine(dialogKey.err)
		return
	}
	wasAway := m.away != ""
	m.away, m.answered = "", dialogKey.at
	m.addToHistories(&dialogKey.state, wasAway)
	m.show(dialogKey.state)
}

// addToHistories adds a state to the histories of the devices.
func (m *Model) addToHistories(state *figures.Snapshot, wasAway bool) {
	for i := range state.Devices {
		d := &state.Devices[i]
		name := d.UUID + d.PCI
		if m.histories[name] == nil {
			m.histories[name] = &history{}
		}
		at := time.Unix(0, state.TimeUnixNano) // the daemon's clock, as that of its spans
		m.histories[name].add(at, taken(d), wasAway)
		m.histories[name].fill(at, d.RecentPercent)
	}
}
