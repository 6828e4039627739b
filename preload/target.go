package preload

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
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
		if slices.Contains([]string{".socket", ".slice", ".scope", ".timer", ".target"}, filepath.Ext(name)) {
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

const (
	// preloadList is the loader's list of what it loads into every program. It has the library alone,
	// in a line of its own: glibc takes what stands behind a second # for names of libraries.
	preloadList = "/etc/ld.so.preload"
	// everywhereRecord says which line of the list is ours, and whether the list was made for it.
	everywhereRecord = "/etc/gpuarb/everywhere.conf"
	listMade         = "# the list was made for it\n"
)

// sessionServices are the files that PAM's configuration of each service includes for its sessions:
// those with somebody at the keyboard, and those without (cron, systemd --user, sudo).
var sessionServices = []string{"common-session", "common-session-noninteractive"}
