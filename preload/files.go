package preload

import (
	"fmt"
	"path/filepath"
	"strings"
)

// blocks is what a target's files are to contain. others are further libraries that its programs
// preload already.
func (m Machine) blocks(t Target, library, memory string, others []string) []block {
	libraries := strings.Join(append([]string{library}, others...), ":")
	switch t.Kind {
	case Unit:
		return []block{m.block(t, filepath.Join(dropInRoot, t.Name+".d", dropInName), dropIn(libraries, memory))}
	case All:
		return m.environments()
	}
	file := filepath.Join(ownRoot, fmt.Sprintf("session-%s-%s.conf", t.Kind, t.Name))
	text := "LD_PRELOAD DEFAULT=" + libraries + "\nGPUARB_VULKAN DEFAULT=1\n"
	if memory != "" {
		text += "GPUARB_MEMORY DEFAULT=" + memory + "\n"
	}
	list := []block{m.block(t, file, text)}
	for _, service := range sessionServices {
		list = append(list, m.block(t, filepath.Join(pamRoot, service), session(t, file)))
	}
	return list
}

// dropIn has a service start after the daemon, with the library.
func dropIn(libraries, memory string) string {
	text := "[Unit]\nWants=gpuarbd.socket\nAfter=gpuarbd.socket gpuarbd.service\n[Service]\n" +
		"Environment=\"LD_PRELOAD=" + escapeUnit(libraries) + "\"\n" +
		"Environment=\"GPUARB_VULKAN=1\"\n"
	if memory != "" {
		text += "Environment=\"GPUARB_MEMORY=" + escapeUnit(memory) + "\"\n"
	}
	return text
}

// escapeUnit keeps systemd from reading a specifier out of 25%.
func escapeUnit(text string) string { return strings.ReplaceAll(text, "%", "%%") }

// session gives the sessions of a user or of a group an environment. For others the second
// line is passed over; a module that is missing does the same.
func session(t Target, environment string) string {
	who := "user = " + t.Name
	if t.Kind == Group {
		who = "user ingroup " + t.Name
	}
	return "session [success=ignore default=1] pam_succeed_if.so quiet " + who + "\n" +
		"session optional pam_env.so readenv=0 conffile=" + environment + "\n"
}
