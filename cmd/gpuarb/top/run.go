package top

// This file hands the Model to the terminal library. cmd/gpuarb/top.go calls it; model.go has the
// Model.

import (
	"errors"

	tea "charm.land/bubbletea/v2"
)

// frames bounds how often the terminal is written to, per second.
const frames = 30

// Run shows the screen until the user leaves it. environ says what the terminal can do.
func Run(daemon Daemon, options Options, environ []string) error {
	_, err := tea.NewProgram(New(daemon, options), tea.WithFPS(frames), tea.WithEnvironment(environ)).Run()
	if errors.Is(err, tea.ErrInterrupted) {
		return nil
	}
	return err
}
