package preload

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

func (m Machine) record(lines string) block {
	return m.block(Target{Kind: All}, everywhereRecord, lines)
}

// Where programs get GPUARB_VULKAN from, for which the loader's list has no place: without it Vulkan's loader does not open the
// library as a layer.
const (
	everywhereSessions = "/etc/gpuarb/everywhere-sessions.conf"
	everywhereServices = "/etc/systemd/system.conf.d/" + dropInName
)

// environments are the blocks that give all sessions and services the variable. They are written as far as this system has a way
// for it: one without systemd, or without Debian's files for PAM, is none the worse for that.
func (m Machine) environments() []block {
	all := Target{Kind: All}
	services := m.block(all, everywhereServices, "[Manager]\nDefaultEnvironment=GPUARB_VULKAN=1\n")
	services.needs = m.path("/etc/systemd")
	sessions := m.block(all, everywhereSessions, "GPUARB_VULKAN DEFAULT=1\n")
	sessions.needs = m.path(filepath.Join(pamRoot, sessionServices[0]))
	list := []block{services, sessions}
	for _, service := range sessionServices {
		b := m.block(all, filepath.Join(pamRoot, service), "session optional pam_env.so readenv=0 conffile="+everywhereSessions+"\n")
		b.needs = b.path
		list = append(list, b)
	}
	return list
}

// listEverywhere puts the library before all that is in the list. A line of ours that named another
// place of it is taken out first.
func (m Machine) listEverywhere(library string) error {
	if _, err := m.unlistEverywhere(); err != nil {
		return err
	}
	old, err := os.ReadFile(m.path(preloadList))
	lines := "# library " + library + "\n"
	if errors.Is(err, fs.ErrNotExist) {
		lines, err = lines+listMade, nil
	}
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(old)) {
		if strings.TrimSpace(line) == library {
			return fmt.Errorf("%s has the library already, by another's hand", preloadList)
		}
	}
	record := m.record(lines)
	if err := record.insert(); err != nil {
		return err
	}
	if err := replace(m.path(preloadList), []byte(library+"\n"+string(old))); err != nil {
		_, undone := record.remove()
		return errors.Join(err, undone)
	}
	return nil
}

// unlistEverywhere takes our line out of the list, and the list away where it was made for it and
// has nothing else.
func (m Machine) unlistEverywhere() (bool, error) {
	record := m.record("")
	text, err := os.ReadFile(record.path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	entry, found := parse(string(text))
	if !found {
		return false, nil
	}
	list := m.path(preloadList)
	old, err := os.ReadFile(list)
	if err == nil {
		rest := without(string(old), entry.Library+"\n")
		switch {
		case rest == "" && strings.Contains(string(text), listMade):
			err = os.Remove(list)
		case rest != string(old):
			err = replace(list, []byte(rest))
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	return record.remove()
}

// without takes the first line that is this one out of a text.
func without(text, line string) string {
	if rest, ok := strings.CutPrefix(text, line); ok {
		return rest
	}
	if before, after, ok := strings.Cut(text, "\n"+line); ok {
		return before + "\n" + after
	}
	return text
}
