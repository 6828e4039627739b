package preload

// This file computes the blocks of a target: what is written, and where. enable.go writes the
// blocks.

import (
	"fmt"
	"path/filepath"
	"strings"
)

// blocks returns the blocks of a target. others are libraries that the target's programs preload
// already.
func (m Machine) blocks(t Target, library, memory string, others []string) []block {
	libraries := strings.Join(append([]string{library}, others...), ":")
	switch t.Kind {
	case Unit:
		return []block{m.block(t, filepath.Join(dropInRoot, t.Name+".d", dropInName), dropInText(libraries, memory))}
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
		list = append(list, m.block(t, filepath.Join(pamRoot, service), sessionLines(t, file)))
	}
	return list
}

// dropInText returns a drop-in that starts a service after the daemon, with the library.
func dropInText(libraries, memory string) string {
	text := "[Unit]\nWants=gpuarbd.socket\nAfter=gpuarbd.socket gpuarbd.service\n[Service]\n" +
		"Environment=\"LD_PRELOAD=" + escapeUnit(libraries) + "\"\n" +
		"Environment=\"GPUARB_VULKAN=1\"\n"
	if memory != "" {
		text += "Environment=\"GPUARB_MEMORY=" + escapeUnit(memory) + "\"\n"
	}
	return text
}

// escapeUnit escapes "%", so that systemd does not read 25% as a specifier.
func escapeUnit(text string) string { return strings.ReplaceAll(text, "%", "%%") }

// sessionLines returns lines for PAM that give an environment to the sessions of a user or a group.
// In other sessions the second line is skipped, also if the module of the first line is missing.
func sessionLines(t Target, environment string) string {
	who := "user = " + t.Name
	if t.Kind == Group {
		who = "user ingroup " + t.Name
	}
	return "session [success=ignore default=1] pam_succeed_if.so quiet " + who + "\n" +
		"session optional pam_env.so readenv=0 conffile=" + environment + "\n"
}
