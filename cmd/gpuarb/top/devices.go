package top

// This file draws the devices at the top of the screen. bars.go draws their bars, history.go their
// graphs, table.go the rows below.

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/charmbracelet/x/ansi"
	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/internal/report"
)

const (
	maxLines  = 5 // lines of one device
	maxGraph  = 60
	minGraph  = 10
	onceLines = 4 // lines of one device if the screen is printed
)

// linesPerDevice returns the number of lines of each device on a screen with a number of lines. All
// devices together get at most two fifths of the screen, but each at least one line.
func linesPerDevice(screen, devices int) int {
	if devices == 0 {
		return 0
	}
	return min(max(1, screen*2/5/devices), maxLines)
}

// devicesShown returns the devices that fit, and the lines of each. They get at most half of the
// screen.
func (m *Model) devicesShown() ([]figures.DeviceState, int) {
	all := m.state.Devices
	each := linesPerDevice(m.height, len(all))
	switch {
	case m.compact():
		each = 1
	case m.once:
		each = onceLines
	}
	if most := max(1, m.height/2); m.height > 0 && len(all)*each > most {
		all = all[:most/each]
	}
	return all, each
}

// drawDevices draws the devices, each with its figures on the left and its history on the right.
func (m *Model) drawDevices() []string {
	var lines []string
	devices, each := m.devicesShown()
	widest := 0
	for i := range devices { // so that the bars of all devices end at the same cell
		widest = max(widest, ansi.StringWidth(m.lineFigures(&devices[i])))
	}
	for i := range devices {
		lines = append(lines, m.drawDevice(&devices[i], each, widest)...)
	}
	if more := len(m.state.Devices) - len(devices); more > 0 {
		lines = append(lines, paint(faint, fmt.Sprintf("and %d devices more: enlarge the terminal, or see `gpuarb devices`", more)))
	}
	if len(devices) > 0 && !m.options.Compact && (m.height == 0 || m.height >= 20) {
		lines = append(lines, m.legend())
	}
	return lines
}

// drawDevice draws a device in a number of lines. If that is one line, its figures take widest cells.
func (m *Model) drawDevice(d *figures.DeviceState, each, widest int) []string {
	graph := min(max(m.width/3, minGraph), maxGraph)
	left := max(1, m.width-graph-1)
	if m.compact() || m.once {
		graph, left = 0, m.width
	}
	if each == 1 {
		name := fmt.Sprintf("%-6s ", deviceTitle(d))
		cells := max(4, left-len(name)-widest)
		return m.withHistory(d, []string{paint(bold, name) + bar(parts(m.glyphs, d), d.Total, cells) + m.lineFigures(d)}, left, graph)
	}
	title, state, right := paint(bold, deviceTitle(d))+" ", m.deviceState(d), freeOf(d)+queued(d)+" of "+report.Amount(d.Total)
	room := max(0, left-ansi.StringWidth(title+state+right)-1) // for the name
	lines := []string{
		fit(title+ansi.Truncate(report.Escape(d.Name), room, "…")+state, max(0, left-ansi.StringWidth(right)-1)) + " " + right,
		bar(parts(m.glyphs, d), d.Total, max(4, left-6)) + percentTaken(d),
	}
	if each > 2 {
		lines = append(lines, spell(parts(m.glyphs, d)))
	}
	if each > 3 {
		lines = append(lines, m.deviceRest(d))
	}
	for len(lines) < each {
		lines = append(lines, "")
	}
	return m.withHistory(d, lines, left, graph)
}

// lineFigures returns the figures of a device that has one line.
func (m *Model) lineFigures(d *figures.DeviceState) string {
	state := m.deviceState(d)
	if m.width >= narrow {
		return percentTaken(d) + fmt.Sprintf(" of %-6s ", report.Amount(d.Total)) + freeOf(d) + state
	}
	return percentTaken(d) + cmp.Or(state, " "+freeOf(d))
}

// percentTaken returns how much of a device is taken, in six cells.
func percentTaken(d *figures.DeviceState) string {
	text := fmt.Sprintf(" %3.0f%%", 100*taken(d))
	if taken(d) > 1 {
		return paint(alarm, text)
	}
	return text
}

// freeOf returns what can be granted of a device.
func freeOf(d *figures.DeviceState) string {
	return paint(bold, "free "+report.Amount(d.Free))
}

// queued returns how much of a device is left for requests that wait, while new programs get
// nothing; "": nothing is.
func queued(d *figures.DeviceState) string {
	left := d.Capacity.Less(d.Committed)
	if d.Free > 0 || d.Queue == 0 || left == 0 {
		return ""
	}
	return " (" + report.Amount(left) + " queued)"
}

// spell names the parts of a device that are taken, with their amounts.
func spell(all []part) string {
	words := []string{paint(used, all[0].name) + " " + report.Amount(all[0].bytes)}
	for _, p := range all[1 : len(all)-1] {
		if p.bytes > 0 {
			words = append(words, paint(p.attribute, p.name)+" "+report.Amount(p.bytes))
		}
	}
	return strings.Join(words, "  ")
}

// withHistory puts the history of a device to the right of its lines.
func (m *Model) withHistory(d *figures.DeviceState, lines []string, left, graph int) []string {
	if h := m.histories[d.UUID+d.PCI]; graph > 0 && h != nil {
		drawn := h.graph(m.glyphs, graph, len(lines))
		for i := range lines {
			lines[i] = fit(lines[i], left) + " " + drawn[i]
		}
	}
	return lines
}

// deviceTitle returns the title of a device.
func deviceTitle(d *figures.DeviceState) string {
	if !d.IsGPU() {
		return "CPU"
	}
	return fmt.Sprintf("GPU %d", d.Index)
}

// deviceState says what is unusual about a device.
func (m *Model) deviceState(d *figures.DeviceState) string {
	state := report.DeviceState(*d)
	switch {
	case state == "ok":
		return ""
	case d.Lost || d.Unresponsive:
		return " " + paint(alarm, state)
	}
	return " " + paint(attention, state)
}

// deviceRest says what is left to say about a device: slots, waiting requests, pressure.
func (m *Model) deviceRest(d *figures.DeviceState) string {
	var words []string
	if d.SlotsMax > 0 {
		words = append(words, fmt.Sprintf("slots %d/%d", d.SlotsCurrent, d.SlotsMax))
	}
	if d.Queue > 0 {
		words = append(words, paint(attention, fmt.Sprintf("waiting %d", d.Queue)))
	}
	if d.Pressure.Some.Avg10 >= 1 {
		words = append(words, fmt.Sprintf("pressure %.0f%%", d.Pressure.Some.Avg10))
	}
	return strings.Join(words, "  ")
}

// legend explains the characters of a bar.
func (m *Model) legend() string {
	between, after := "  ", " "
	if m.width < narrow {
		between, after = " ", ""
	}
	var words []string
	for _, p := range parts(m.glyphs, &figures.DeviceState{}) {
		words = append(words, paint(p.attribute, p.glyph)+after+p.name)
	}
	left := strings.Join(words, between)
	if m.once || m.compact() {
		return left
	}
	right := "taken 0-100%, last 5 min"
	return fit(left, max(0, m.width-len(right))) + paint(faint, right)
}
