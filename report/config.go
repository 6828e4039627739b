package report

import "github.com/gpuarb/gpuarb/accounting"

// ConfigMistakes says that the files of a configuration have mistakes, in place of which the last one without is in force,
// and what to do. "": they have none.
func ConfigMistakes(c accounting.ConfigState) (text, advice string) {
	if c.Mistakes == "" {
		return "", ""
	}
	return "the configuration has mistakes, and the last one without is in force:\n" + c.Mistakes,
		"mend it (gpuarb config check), then have the daemon read it: systemctl reload gpuarbd"
}
