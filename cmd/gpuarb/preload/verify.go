package preload

// This file starts programs as the programs of a target start, to verify that they get the library. enable.go
// calls it.

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// checkTarget returns an error if the target does not exist, or cannot be reached on this system.
func (m Machine) checkTarget(t Target) error {
	switch t.Kind {
	case Unit:
		return m.checkUnit(t.Name)
	case User, Group:
		for _, service := range sessionServices {
			if _, err := os.Stat(m.path(filepath.Join(pamRoot, service))); err != nil {
				return fmt.Errorf("%w: the sessions of this system are set up in another way than Debian's; see docs/admin/control.md for the lines to add by hand", err)
			}
		}
		if _, err := m.entry(t); err != nil {
			return err
		}
	}
	return nil
}

func (m Machine) checkUnit(name string) error {
	if m.Here() {
		state, err := m.output(nil, "systemctl", "show", "--property=LoadState", "--value", name)
		switch {
		case err != nil:
			return err
		case strings.TrimSpace(state) != "loaded":
			return fmt.Errorf("systemd has no unit %s (it is %s)", name, strings.TrimSpace(state))
		}
		return nil
	}
	files := []string{name}
	if at := strings.Index(name, "@"); at >= 0 { // an instance has the file of its template
		files = append(files, name[:at+1]+".service")
	}
	for _, dir := range []string{dropInRoot, "/usr/lib/systemd/system", "/lib/systemd/system"} {
		for _, file := range files {
			if _, err := os.Stat(m.path(filepath.Join(dir, file))); err == nil {
				return nil
			}
		}
	}
	return fmt.Errorf("%s has no unit %s", m.Root, name)
}

// entry returns the fields of a user or group in /etc/passwd or /etc/group.
func (m Machine) entry(t Target) ([]string, error) {
	table := "passwd"
	if t.Kind == Group {
		table = "group"
	}
	text, err := m.table(table, t.Name)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(text) {
		if fields := strings.Split(strings.TrimSpace(line), ":"); fields[0] == t.Name && len(fields) > 3 {
			return fields, nil
		}
	}
	return nil, fmt.Errorf("this machine has no %v", t)
}

// table reads users or groups. On the running system it asks getent, which knows those of directory
// servers too.
func (m Machine) table(name string, keys ...string) (string, error) {
	if m.Here() {
		text, err := m.output(nil, "getent", append([]string{name}, keys...)...)
		if err != nil && len(keys) > 0 && strings.Contains(err.Error(), "exit status 2") {
			return "", nil // the key does not exist
		}
		return text, err
	}
	text, err := os.ReadFile(m.path("/etc/" + name))
	return string(text), err
}

// preloaded returns the libraries that the programs of a target preload already, except gpuarb's
// library.
func (m Machine) preloaded(t Target, library string) []string {
	if t.Kind != Unit || !m.Here() {
		return nil
	}
	text, err := m.output(nil, "systemctl", "show", "--property=Environment", "--value", t.Name)
	if err != nil {
		return nil
	}
	for _, variable := range splitVariables(text) {
		if list, ok := strings.CutPrefix(variable, "LD_PRELOAD="); ok {
			return slices.DeleteFunc(strings.FieldsFunc(list, func(r rune) bool { return r == ':' || r == ' ' }), func(path string) bool {
				return filepath.Base(path) == filepath.Base(library)
			})
		}
	}
	return nil
}

// splitVariables splits an environment as systemd prints it. Variables with a blank are in quotes.
func splitVariables(text string) []string {
	quoted := false
	return strings.FieldsFunc(text, func(r rune) bool {
		if r == '"' {
			quoted = !quoted
		}
		return r == '"' || !quoted && (r == ' ' || r == '\n')
	})
}

// verify starts a program as the target's programs start. It fails if that program does not have
// the library.
func (m Machine) verify(t Target, library string) error {
	switch t.Kind {
	case Unit:
		return m.verifyUnit(t.Name, library)
	case User, Group:
		return m.verifySession(t, library)
	}
	if err := m.checkLoads(library); err != nil {
		return err
	}
	if m.booted() {
		return m.reloadUnits() // from now on systemd sets the variable for what it starts
	}
	return nil
}

// booted reports whether systemd runs this machine, and the machine is the running system.
func (m Machine) booted() bool {
	_, err := os.Stat("/run/systemd/system")
	return m.Here() && err == nil
}

// verifyUnit lets systemd start a program with the user and environment of the unit.
func (m Machine) verifyUnit(name, library string) error {
	if !m.Here() {
		return nil // systemd does not run there
	}
	if err := m.reloadUnits(); err != nil {
		return err
	}
	args := []string{"--quiet", "--wait", "--pipe", "--collect"}
	shown, err := m.output(nil, "systemctl", "show", "--property=User,Group,RootDirectory,DynamicUser,Environment", name)
	if err != nil {
		return err
	}
	for line := range strings.Lines(shown) {
		if property := strings.TrimSpace(line); !strings.HasSuffix(property, "=") {
			args = append(args, "--property="+property)
		}
	}
	maps, err := m.output(nil, "systemd-run", append(args, "cat", "/proc/self/maps")...)
	if err == nil && !strings.Contains(maps, library) {
		err = errors.New("it has not got the library; does the unit's EnvironmentFile set LD_PRELOAD?")
	}
	if err != nil {
		return fmt.Errorf("a program that was started as %s would be: %w", name, err)
	}
	return nil
}

func (m Machine) reloadUnits() error {
	_, err := m.output(nil, "systemctl", "daemon-reload")
	return err
}

// verifySession opens a session with su, and fails if its shell does not have the library.
func (m Machine) verifySession(t Target, library string) error {
	user, err := m.anyMember(t)
	if err != nil || user == "" {
		return err // a group without members cannot be tested
	}
	maps, err := m.output(nil, "su", "--login", "--shell", "/bin/sh", "--command", "cat /proc/$$/maps", user)
	if maps != "" { // errors in the profile of the user do not matter
		err = nil
	}
	if err == nil && !strings.Contains(maps, library) {
		err = errors.New("it has not got the library; is pam_env missing, or LD_PRELOAD set in /etc/environment?")
	}
	if err != nil {
		return fmt.Errorf("a session of %s was opened: %w", user, err)
	}
	return nil
}

// anyMember returns a user of the target; "": the group has no members.
func (m Machine) anyMember(t Target) (string, error) {
	fields, err := m.entry(t)
	if err != nil || t.Kind == User {
		return t.Name, err
	}
	if members := strings.Split(fields[3], ","); members[0] != "" {
		return members[0], nil
	}
	text, err := m.table("passwd")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(text) {
		if user := strings.Split(line, ":"); len(user) > 3 && user[3] == fields[2] { // it is the first group of the user
			return user[0], nil
		}
	}
	return "", nil
}

// Restart restarts a service, if it runs. If library is not empty, Restart verifies that the main
// process gets it.
func (m Machine) Restart(t Target, library string) error {
	if _, err := m.output(nil, "systemctl", "try-restart", t.Name); err != nil {
		return err
	}
	text, err := m.output(nil, "systemctl", "show", "--property=MainPID", "--value", t.Name)
	if err != nil {
		return err
	}
	pid := strings.TrimSpace(text)
	if pid == "" || pid == "0" { // it did not run
		return nil
	}
	for late := time.Now().Add(m.Timeout / 3); library != ""; time.Sleep(50 * time.Millisecond) {
		maps, err := os.ReadFile("/proc/" + pid + "/maps")
		switch {
		case err != nil:
			return fmt.Errorf("%s was restarted; its process %s has ended since", t.Name, pid)
		case strings.Contains(string(maps), library):
			return nil
		case time.Now().After(late): // at first the process still runs a program of systemd
			return fmt.Errorf("%s was restarted, and its process %s has not got the library: does it set LD_PRELOAD itself, in an EnvironmentFile or a script? "+
				"Is it a static program, or one that is started in a container?", t.Name, pid)
		}
	}
	return nil
}
