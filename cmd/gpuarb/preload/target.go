package preload

// This file owns Target, whose programs are put under the library, and the paths of the files.

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Kind is a kind of target.
type Kind string

// The kinds. Each is also the name of a flag of `gpuarb enable`.
const (
	Unit  Kind = "unit"  // a service of systemd
	User  Kind = "user"  // the sessions of a user
	Group Kind = "group" // the sessions of all members of a group
	All   Kind = "all"   // every program of the machine
)

// Target names the programs that are put under the library. Name is empty for All.
type Target struct {
	Kind Kind
	Name string
}

func (t Target) String() string { return strings.TrimSpace(string(t.Kind) + " " + t.Name) }

// The names that systemd and useradd accept. Their files cannot hold other names.
var (
	unitName = regexp.MustCompile(`^[A-Za-z0-9:_.\\@-]+\.service$`)
	userName = regexp.MustCompile(`^[A-Za-z0-9_.][A-Za-z0-9_.-]*\$?$`)
)

// NewTarget checks a name. The name of a service may lack ".service".
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
	// preloadList is the list of libraries that the loader adds to all programs. The line of the
	// library holds nothing else, because glibc reads text after a second # as names of libraries.
	preloadList = "/etc/ld.so.preload"
	// everywhereRecord records the line of gpuarb in the list, and whether the list was created for
	// it.
	everywhereRecord = "/etc/gpuarb/everywhere.conf"
	listCreated      = "# the list was made for it\n"
)

// sessionServices are the files that PAM includes for sessions: those with a user at a terminal,
// and those without (cron, systemd --user, sudo).
var sessionServices = []string{"common-session", "common-session-noninteractive"}
