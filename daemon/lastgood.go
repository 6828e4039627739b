package daemon

// This file keeps the last configuration without mistakes on the disk. After a typo and a restart the daemon then has
// the earlier limits instead of none. start.go and reload.go call it.
//
// The kept text is that of config.Config.String. Each main configuration file has its own kept file, because several
// daemons may run on a machine, each with its own --config.

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gpuarb/gpuarb/internal/config"
)

// systemState is the folder of files that the system's daemon keeps over a reboot.
const systemState = "/var/lib/gpuarb"

// longestName is the longest name of a kept file in bytes. The name is the escaped path of the configuration, or for
// a longer path a hash of it.
const longestName = 200

// shownMistakes is the number of mistakes of a configuration that snapshots show. The log has all.
const shownMistakes = 5

// stateFolder returns the folder of files that a daemon keeps over a reboot: the folder that systemd names, or else
// the folder of the system or of the user. "": there is none.
func (o Options) stateFolder() string {
	if given, _, _ := strings.Cut(os.Getenv("STATE_DIRECTORY"), ":"); given != "" {
		return given
	}
	if !o.User && os.Geteuid() == 0 {
		return systemState
	}
	if state := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(state) {
		return filepath.Join(state, "gpuarb")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".local", "state", "gpuarb")
}

// lastGoodPath returns the path of the kept configuration for a main file; "": there is no folder for it.
func (o Options) lastGoodPath(main string) string {
	folder := o.stateFolder()
	if folder == "" {
		return ""
	}
	name := url.PathEscape(cmp.Or(main, config.DefaultPath))
	if len(name) > longestName {
		name = fmt.Sprintf("%x", sha256.Sum256([]byte(main)))
	}
	return filepath.Join(folder, "config", name)
}

// lastGood reads the last good configuration for a main file, and when it was kept. The error says why there is none.
func (o Options) lastGood(main string) (*config.Config, time.Time, error) {
	path := o.lastGoodPath(main)
	info, err := os.Stat(path)
	if err != nil {
		return nil, time.Time{}, err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, time.Time{}, err
	}
	c, err := config.Parse(path, data)
	return c, info.ModTime(), err
}

// keepLastGood writes a configuration to the disk as the last good one for a main file, unless it is already there.
func (o Options) keepLastGood(main string, c *config.Config) (err error) {
	path, text := o.lastGoodPath(main), c.String()
	if path == "" {
		return errors.New("there is no folder for it: neither STATE_DIRECTORY nor XDG_STATE_HOME nor HOME is set")
	}
	if data, err := os.ReadFile(path); err == nil && string(data) == text {
		return os.Chmod(path, 0o600) // older daemons used another mode
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(path), ".new-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(file.Name())
		}
	}()
	_, err = file.WriteString(text) // os.CreateTemp gives the file the mode 0600
	err = errors.Join(err, file.Sync(), file.Close())
	if err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}

// loadOrLastGood reads the configuration. If its files have mistakes, it returns the last good configuration, with
// the mistakes. If there is none, it returns the error of the files.
func (o Options) loadOrLastGood() (l loaded, err error) {
	l.config, l.main, err = o.load()
	var mistakes config.Mistakes
	if err == nil || !errors.As(err, &mistakes) {
		return l, err
	}
	good, since, errGood := o.lastGood(l.main)
	switch {
	case errors.Is(errGood, fs.ErrNotExist):
		return l, err
	case errGood != nil:
		return l, fmt.Errorf("%w\nthe last configuration without mistakes cannot be used: %v", err, errGood)
	}
	l.config, l.since, l.mistakes = good, since, mistakes
	return l, nil
}

// loaded is a configuration that was read, with its source.
type loaded struct {
	config   *config.Config
	main     string          // path of the main file; "": the system's default
	mistakes config.Mistakes // mistakes in the files, and config is the last good one; nil: none
	since    time.Time       // time at which the last good configuration was kept; zero: there are no mistakes
}

// firstMistakes formats the first shownMistakes mistakes, one on each line, and the number of the others.
func firstMistakes(all config.Mistakes) string {
	if len(all) <= shownMistakes {
		return all.Error()
	}
	return fmt.Sprintf("%v\nand %d more", all[:shownMistakes], len(all)-shownMistakes)
}
