package report

import "github.com/gpuarb/gpuarb/figures"

// ConfigMistakes returns what to tell users if the configuration files have mistakes, so that the last configuration without
// mistakes is in force, and what to do. Both are empty if the files have none.
func ConfigMistakes(c figures.ConfigState) (text, advice string) {
	if c.Mistakes == "" {
		return "", ""
	}
	return "the configuration has mistakes, and the last one without is in force:\n" + c.Mistakes,
		"mend it (gpuarb config check), then have the daemon read it: systemctl reload gpuarbd"
}
