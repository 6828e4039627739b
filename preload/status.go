package preload

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gpuarb/gpuarb/procfacts"
)

// Entry is one target that is put under the library.
type Entry struct {
	Target
	Library string
	Memory  string // GPUARB_MEMORY of its programs
	File    string
	Running int  // its processes that run now
	Held    int  // of those, which have the library loaded
	Known   bool // whether that could be seen
}

// Entries lists what is written on the machine, from the files alone.
func (m Machine) Entries() ([]Entry, error) {
	var all []Entry
	files, err := filepath.Glob(m.path(filepath.Join(dropInRoot, "*.d", dropInName)))
	if err != nil {
		return nil, err
	}
	sessions, err := filepath.Glob(m.path(filepath.Join(ownRoot, "session-*.conf")))
	if err != nil {
		return nil, err
	}
	for _, path := range slices.Concat(files, sessions, []string{m.path(everywhereRecord)}) {
		text, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		entry, found := parse(string(text))
		entry.File = path
		if entry.Kind == All {
			entry.File = m.path(preloadList)
		}
		if found {
			all = append(all, entry)
		}
	}
	return all, nil
}

// parse reads the first block of a file.
func parse(text string) (entry Entry, found bool) {
	inside := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if name, begins := strings.CutPrefix(line, "# gpuarb begin: "); begins {
			name, _, _ = strings.Cut(name, " (")
			kind, name, _ := strings.Cut(name, " ")
			entry.Target, inside = Target{Kind(kind), name}, true
			continue
		}
		if strings.HasPrefix(line, "# gpuarb end:") {
			return entry, inside
		}
		if inside {
			entry.read(line)
		}
	}
	return entry, false
}

// read takes what a line of a block says.
func (e *Entry) read(line string) {
	line = strings.ReplaceAll(strings.Trim(strings.TrimPrefix(line, "Environment="), `"`), "%%", "%")
	line = strings.Replace(line, " DEFAULT=", "=", 1)
	if memory, ok := strings.CutPrefix(line, "GPUARB_MEMORY="); ok {
		e.Memory = memory
	}
	if list, ok := strings.CutPrefix(line, "LD_PRELOAD="); ok {
		e.Library, _, _ = strings.Cut(list, ":")
	}
	if library, ok := strings.CutPrefix(line, "# library "); ok {
		e.Library = library
	}
}

// process is one that runs on this machine.
type process struct {
	uid    uint32
	groups []uint32
	unit   string // of systemd's, by its cgroup
	held   bool
}

// Count looks which processes of each entry run, and which of them have the library loaded. Other users' can
// be seen by root alone.
func (m Machine) Count(entries []Entry) {
	if !m.Here() {
		return
	}
	pids, _ := procfacts.Here.PIDs()
	var all []process
	known := os.Geteuid() == 0
	for _, pid := range pids {
		if p, ok := look(pid); ok {
			all = append(all, p)
		}
	}
	for i := range entries {
		e := &entries[i]
		e.Known = known
		id := ""
		if fields, err := m.entry(e.Target); (e.Kind == User || e.Kind == Group) && err == nil {
			id = fields[2]
		}
		for _, p := range all {
			if p.of(e.Target, id) {
				e.Running++
				if p.held {
					e.Held++
				}
			}
		}
	}
}

func (p process) of(t Target, id string) bool {
	switch t.Kind {
	case Unit:
		return p.unit == t.Name
	case User:
		return strconv.Itoa(int(p.uid)) == id
	case Group:
		return slices.ContainsFunc(p.groups, func(gid uint32) bool { return strconv.Itoa(int(gid)) == id })
	}
	return true
}

// look reads what there is to know of a process; false: it has ended, or is the kernel's own.
func look(pid int) (p process, ok bool) {
	if arguments, err := procfacts.Here.Arguments(pid); err != nil || len(arguments) == 0 {
		return p, false
	}
	var err error
	if p.uid, p.groups, err = procfacts.Here.Owner(pid); err != nil {
		return p, false
	}
	p.unit = procfacts.Here.Unit(pid)
	maps, _ := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	p.held = strings.Contains(string(maps), "/libgpuarb.so")
	return p, true
}

// State says in words how far an entry's programs are under the library.
func (e Entry) State() string {
	switch {
	case !e.Known:
		return "not looked at (that takes root)"
	case e.Running == 0:
		return "nothing runs"
	case e.Held == e.Running:
		return fmt.Sprintf("all %d processes", e.Held)
	case e.Held == 0 && e.Kind == Unit:
		return "not until it is restarted"
	case e.Held == 0:
		return fmt.Sprintf("none of %d processes; new sessions will", e.Running)
	}
	return fmt.Sprintf("%d of %d processes", e.Held, e.Running)
}
