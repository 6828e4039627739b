package report

// This file says that the configuration has mistakes. cmd/gpuarb and package doctor print it.

import "github.com/gpuarb/gpuarb/internal/figures"

// ConfigMistakes says that the configuration files have mistakes, so that an older configuration
// stays in force, and what to do. Both texts are empty if the files have no mistakes.
func ConfigMistakes(c figures.ConfigState) (text, advice string) {
	if c.Mistakes == "" {
		return "", ""
	}
	return "the configuration has mistakes, and the last one without is in force:\n" + c.Mistakes,
		"mend it (gpuarb config check), then have the daemon read it: systemctl reload gpuarbd"
}
