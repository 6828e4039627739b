package preload

// This file finds out what is enabled, from the files alone, and counts the processes that have the
// library.

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gpuarb/gpuarb/internal/procfacts"
)

// Entry is a target whose programs load the library when they start, as File says.
type Entry struct {
	Target
	Library string
	Memory  string // GPUARB_MEMORY of its programs; "": none
	File    string
	Running int  // number of its processes that run now
	Loaded  int  // number of its processes that have the library loaded
	Known   bool // whether the processes could be counted
}

// Entries returns what is enabled on the machine, from the files alone.
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

// read reads a line of a block into e.
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

// process is a process of this machine.
type process struct {
	uid    uint32
	groups []uint32
	unit   string // unit of systemd, from its cgroup
	loaded bool
}

// Count counts the processes of each entry, and those that have the library loaded. Only root can
// see processes of other users.
func (m Machine) Count(entries []Entry) {
	if !m.Here() {
		return
	}
	pids, _ := procfacts.Here.PIDs()
	var all []process
	known := os.Geteuid() == 0
	for _, pid := range pids {
		if p, ok := readProcess(pid); ok {
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
			if p.belongsTo(e.Target, id) {
				e.Running++
				if p.loaded {
					e.Loaded++
				}
			}
		}
	}
}

func (p process) belongsTo(t Target, id string) bool {
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

// readProcess reads facts about a process. It returns false for a process that has ended, and for a
// kernel thread.
func readProcess(pid int) (p process, ok bool) {
	if arguments, err := procfacts.Here.Arguments(pid); err != nil || len(arguments) == 0 {
		return p, false
	}
	var err error
	if p.uid, p.groups, err = procfacts.Here.Owner(pid); err != nil {
		return p, false
	}
	p.unit = procfacts.Here.Unit(pid)
	maps, _ := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	p.loaded = strings.Contains(string(maps), "/libgpuarb.so")
	return p, true
}

// State says how many programs of an entry run under the library.
func (e Entry) State() string {
	switch {
	case !e.Known:
		return "not looked at (that takes root)"
	case e.Running == 0:
		return "nothing runs"
	case e.Loaded == 0 && e.Kind == Unit:
		return "not until it is restarted"
	case e.Loaded == 0:
		return fmt.Sprintf("0 of %d processes: those that begin from now on will", e.Running)
	}
	return fmt.Sprintf("%d of %d processes", e.Loaded, e.Running)
}
