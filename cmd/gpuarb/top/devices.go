package top

// This file draws the devices at the top of the screen. bars.go draws their bars, history.go their
// graphs, table.go the rows below.

import (
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
	case m.options.Compact:
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
	for i := range devices {
		lines = append(lines, m.drawDevice(&devices[i], each)...)
	}
	if more := len(m.state.Devices) - len(devices); more > 0 {
		lines = append(lines, paint(faint, fmt.Sprintf("and %d devices more: enlarge the terminal, or see `gpuarb devices`", more)))
	}
	if len(devices) > 0 && !m.options.Compact && (m.height == 0 || m.height >= 20) {
		lines = append(lines, m.legend())
	}
	return lines
}

func (m *Model) drawDevice(d *figures.DeviceState, each int) []string {
	graph := min(max(m.width/3, minGraph), maxGraph)
	if m.options.Compact || m.once {
		graph = 0
	}
	left := max(1, m.width-graph-1)
	if each == 1 {
		name := fmt.Sprintf("%-6s ", deviceTitle(d))
		figures := fmt.Sprintf(" %s/%s", report.Amount(d.Used), report.Amount(d.Total)) + m.deviceState(d)
		cells := max(4, left-len(name)-max(18, ansi.StringWidth(figures)))
		return m.withHistory(d, []string{paint(bold, name) + bar(parts(m.glyphs, d), d.Total, cells) + figures}, left, graph)
	}
	figures := parts(m.glyphs, d)
	spell := func(ps []part) string {
		var words []string
		for _, p := range ps {
			words = append(words, paint(p.attribute, p.name)+" "+report.Amount(p.bytes))
		}
		return strings.Join(words, "  ")
	}
	title := paint(bold, deviceTitle(d)) + " " + report.Escape(d.Name) + m.deviceState(d)
	barLine := bar(figures, d.Total, max(4, left-6)) + fmt.Sprintf(" %3.0f%%", 100*taken(d))
	lines := []string{title + "  " + report.Amount(d.Used) + " of " + report.Amount(d.Total), barLine}
	if each > 2 {
		lines = []string{title, barLine, spell([]part{figures[0], figures[1], figures[4]}) + " of " + report.Amount(d.Total)}
	}
	if each > 3 {
		lines = append(lines, spell(figures[2:4])+m.deviceRest(d))
	}
	for len(lines) < each {
		lines = append(lines, "")
	}
	return m.withHistory(d, lines, left, graph)
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
	text := ""
	if d.SlotsMax > 0 {
		text += fmt.Sprintf("  slots %d/%d", d.SlotsCurrent, d.SlotsMax)
	}
	if d.Queue > 0 {
		text += "  " + paint(attention, fmt.Sprintf("waiting %d", d.Queue))
	}
	if d.Pressure.Some.Avg10 >= 1 {
		text += fmt.Sprintf("  pressure %.0f%%", d.Pressure.Some.Avg10)
	}
	return text
}

// legend explains the characters of a bar.
func (m *Model) legend() string {
	var words []string
	for _, p := range parts(m.glyphs, &figures.DeviceState{}) {
		words = append(words, paint(p.attribute, p.glyph)+" "+p.name)
	}
	left := strings.Join(words, "  ")
	if m.once {
		return left
	}
	right := "taken, last 5 min"
	return fit(left, max(0, m.width-len(right))) + paint(faint, right)
}
