package top

import (
	"errors"

	tea "charm.land/bubbletea/v2"
)

// frames is how often the terminal is written to in a second, at most.
const frames = 30

// Run shows the screen on the terminal until it is left. environ says what the terminal can do.
func Run(daemon Daemon, options Options, environ []string) error {
	_, err := tea.NewProgram(New(daemon, options), tea.WithFPS(frames), tea.WithEnvironment(environ)).Run()
	if errors.Is(err, tea.ErrInterrupted) {
		return nil
	}
	return err
}
