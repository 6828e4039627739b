package daemon

// The last configuration without mistakes is kept on the disk, so that a typo and a restart leave a daemon with the limits of
// before, instead of none. What is kept is the text of config.Config.String, whole, in one file for each main file of a
// configuration: several daemons may run on a machine, each with a --config of its own.

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gpuarb/gpuarb/config"
)

// systemState is the folder of what the system's daemon keeps over a reboot.
const systemState = "/var/lib/gpuarb"

// shownMistakes is how many mistakes of a configuration are told to those who did not make them.
const shownMistakes = 5

// stateFolder is the folder of what a daemon keeps over a reboot: the one that systemd gives it, else that of the system or
// of its user; "": it has none.
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

// lastGoodPath is where the last good configuration with a main file is kept; "": nowhere.
func (o Options) lastGoodPath(main string) string {
	folder := o.stateFolder()
	if folder == "" {
		return ""
	}
	return filepath.Join(folder, "config", url.PathEscape(cmp.Or(main, config.DefaultPath)))
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

// keepLastGood writes a configuration down as the last good one with a main file, unless that is the one there.
func (o Options) keepLastGood(main string, c *config.Config) (err error) {
	path, text := o.lastGoodPath(main), c.String()
	if path == "" {
		return errors.New("there is no folder for it: neither STATE_DIRECTORY nor XDG_STATE_HOME nor HOME is set")
	}
	if data, err := os.ReadFile(path); err == nil && string(data) == text {
		return nil
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
	_, err = file.WriteString(text)
	err = errors.Join(err, file.Chmod(0o644), file.Sync(), file.Close())
	if err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}

// loadOrLastGood reads the configuration, or the last good one if the present one has mistakes, which come with it. The error
// is that of the present one if there is no other.
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

// loaded is a configuration with where it is from.
type loaded struct {
	config   *config.Config
	main     string          // path of the main file; "": the system's
	mistakes config.Mistakes // of the present files, in place of which the last good configuration is used; nil: none
	since    time.Time       // when that was kept
}

// few spells some mistakes, one on a line, for those who did not make them.
func few(all config.Mistakes) string {
	if len(all) <= shownMistakes {
		return all.Error()
	}
	return fmt.Sprintf("%v\nand %d more", all[:shownMistakes], len(all)-shownMistakes)
}
