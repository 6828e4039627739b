package preload

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
)

// Kind is what kind of programs is put under the library.
type Kind string

// The kinds. Each is the name of the flag of `gpuarb enable` as well.
const (
	Unit  Kind = "unit"  // a service of systemd's
	User  Kind = "user"  // the sessions of a user
	Group Kind = "group" // the sessions of all members of a group
	All   Kind = "all"   // every program of the machine
)

// Target is whose programs are put under the library. Name is empty with All.
type Target struct {
	Kind Kind
	Name string
}

func (t Target) String() string { return strings.TrimSpace(string(t.Kind) + " " + t.Name) }

// The names that systemd and useradd take; no other could be written into their files.
var (
	unitName = regexp.MustCompile(`^[A-Za-z0-9:_.\\@-]+\.service$`)
	userName = regexp.MustCompile(`^[A-Za-z0-9_.][A-Za-z0-9_.-]*\$?$`)
)

// NewTarget checks a name. That of a service may lack its ".service".
func NewTarget(kind Kind, name string) (Target, error) {
	if kind == Unit && !strings.HasSuffix(name, ".service") {
		if suffix := filepath.Ext(name); suffix == ".socket" || suffix == ".slice" || suffix == ".scope" || suffix == ".timer" || suffix == ".target" {
			return Target{}, fmt.Errorf("%s is no service: only services are started with an environment", name)
		}
		name += ".service"
	}
	t := Target{kind, name}
	switch {
	case kind == All:
		return Target{Kind: All}, nil
	case kind == Unit && name == "gpuarbd.service":
		return t, errors.New("gpuarbd.service is the daemon itself: it needs no library")
	case kind == Unit && (!unitName.MatchString(name) || name == ".service"), kind != Unit && !userName.MatchString(name):
		return t, fmt.Errorf("%q is no name of a %s", strings.TrimSuffix(name, ".service"), kind)
	}
	return t, nil
}

const (
	dropInName = "50-gpuarb.conf"
	dropInRoot = "/etc/systemd/system"
	ownRoot    = "/etc/gpuarb"
	pamRoot    = "/etc/pam.d"
)

// sessionServices are the files that PAM's configuration of each service includes for its sessions:
// those with somebody at the keyboard, and those without (cron, systemd --user, sudo).
var sessionServices = []string{"common-session", "common-session-noninteractive"}

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

func (m Machine) block(t Target, path, lines string) block {
	return block{path: m.path(path), target: t, lines: lines}
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
