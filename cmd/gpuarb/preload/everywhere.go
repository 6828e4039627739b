package preload

// This file puts all programs of a machine under the library: by the loader's list
// /etc/ld.so.preload, and by an environment for sessions and services. enable.go calls it.

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

// The loader's list cannot set GPUARB_VULKAN, without which the Vulkan loader does not open the
// library as a layer. Sessions and services get the variable from these files.
const (
	everywhereSessions = "/etc/gpuarb/everywhere-sessions.conf"
	everywhereServices = "/etc/systemd/system.conf.d/" + dropInName
)

// environments returns the blocks that give the variable to all sessions and services. A block is
// written only if the system has a place for it. A system without systemd, or without Debian's
// files for PAM, works without that block.
func (m Machine) environments() []block {
	all := Target{Kind: All}
	services := m.block(all, everywhereServices, "[Manager]\nDefaultEnvironment=GPUARB_VULKAN=1\n")
	services.requires = m.path("/etc/systemd")
	sessions := m.block(all, everywhereSessions, "GPUARB_VULKAN DEFAULT=1\n")
	sessions.requires = m.path(filepath.Join(pamRoot, sessionServices[0]))
	list := []block{services, sessions}
	for _, service := range sessionServices {
		b := m.block(all, filepath.Join(pamRoot, service), "session optional pam_env.so readenv=0 conffile="+everywhereSessions+"\n")
		b.requires = b.path
		list = append(list, b)
	}
	return list
}

// listEverywhere puts the library before all other entries of the list. If a line of gpuarb names
// another path of the library, that line is removed first.
func (m Machine) listEverywhere(library string) error {
	if _, err := m.unlistEverywhere(); err != nil {
		return err
	}
	old, err := os.ReadFile(m.path(preloadList))
	lines := "# library " + library + "\n"
	if errors.Is(err, fs.ErrNotExist) {
		lines, err = lines+listCreated, nil
	}
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(old)) {
		if strings.TrimSpace(line) == library {
			return fmt.Errorf("%s lists the library already, in a line that gpuarb did not write: nothing is to be done, or take that line out first", preloadList)
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

// unlistEverywhere removes the line of gpuarb from the list. It removes the list itself if the list
// was created for that line and has no other entry.
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
		rest := removeLine(string(old), entry.Library+"\n")
		switch {
		case rest == "" && strings.Contains(string(text), listCreated):
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

// removeLine removes the first line of the text that equals line.
func removeLine(text, line string) string {
	if rest, ok := strings.CutPrefix(text, line); ok {
		return rest
	}
	if before, after, ok := strings.Cut(text, "\n"+line); ok {
		return before + "\n" + after
	}
	return text
}
