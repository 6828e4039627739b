package daemon

// This file keeps the last configuration without mistakes on the disk, so that after a typo and a restart the daemon has the
// limits of before, instead of none. The kept text is that of config.Config.String, in one file for each main file of a
// configuration: several daemons may run on a machine, each with a --config of its own.

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

// longestName is the longest name of a kept file, in bytes, that is the path of a configuration; a longer path's is a hash of it.
const longestName = 200

// shownMistakes bounds the mistakes of a configuration that snapshots have, for tables and `gpuarb doctor`. The log has all.
const shownMistakes = 5

// stateFolder returns the folder of files that a daemon keeps over a reboot: the one that systemd gives it, else that of the
// system or of its user; "": it has none.
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

// lastGoodPath returns the path at which the last good configuration with a main file is kept; "": there is no folder for it.
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

// lastGood reads the last good configuration with a main file, and when it was kept. The error says why there is none.
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

// keepLastGood writes a configuration to the disk as the last good one with a main file, unless it is there already.
func (o Options) keepLastGood(main string, c *config.Config) (err error) {
	path, text := o.lastGoodPath(main), c.String()
	if path == "" {
		return errors.New("there is no folder for it: neither STATE_DIRECTORY nor XDG_STATE_HOME nor HOME is set")
	}
	if data, err := os.ReadFile(path); err == nil && string(data) == text {
		return os.Chmod(path, 0o600) // daemons before gave it another mode
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

// loadOrLastGood reads the configuration. If its files have mistakes it returns the last good one instead, with the mistakes. If
// there is no last good one, the error is that of the files.
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

// loaded is a configuration that was read, and where it is from.
type loaded struct {
	config   *config.Config
	main     string          // path of the main file; "": the system's
	mistakes config.Mistakes // in the files; config is then the last good one; nil: none
	since    time.Time       // if there are mistakes: when the last good one was kept
}

// few spells the first shownMistakes mistakes, one on a line, and how many more there are.
func firstMistakes(all config.Mistakes) string {
	if len(all) <= shownMistakes {
		return all.Error()
	}
	return fmt.Sprintf("%v\nand %d more", all[:shownMistakes], len(all)-shownMistakes)
}
