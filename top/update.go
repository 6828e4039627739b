package top

import (
	"context"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/gpuarb/gpuarb/figures"
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
		return m, m.ask() // the screen shows its effect at once
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
func (m *Model) remember(state *figures.Snapshot, wasAway bool) {
	for i := range state.Devices {
		d := &state.Devices[i]
		name := d.UUID + d.PCI
		if m.histories[name] == nil {
			m.histories[name] = &history{}
		}
		m.histories[name].add(m.now, taken(d), wasAway)
	}
}
