package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// DefaultPath is where the configuration of the machine is.
const DefaultPath = "/etc/gpuarb/gpuarb.toml"

// dropInFolder holds further files, beside the main one.
const dropInFolder = "conf.d"

// maxFile bounds a file, so that a wrong path (a log, a device) ends in a message.
const maxFile = 1 << 20

// OnLoss says what a program does when there is no daemon.
type OnLoss string

// The values of on_loss.
const (
	LossOpen   OnLoss = "open"   // goes on without a limit
	LossClosed OnLoss = "closed" // is refused device memory
)

// Config is a whole configuration, checked.
type Config struct {
	Policy  rules.Policy
	OnLoss  OnLoss // for a bare preload; under `gpuarb run` it is LossClosed
	HTTP    HTTP
	Metrics Metrics
	DCGM    DCGM
	// Commands says who is shown with which arguments a program was started.
	Commands Commands
	Files    []string // what it was read from, in order; empty for the built-in defaults
}

// Metrics says what is exported beyond the usual.
type Metrics struct {
	Jobs bool // the series of each job
}

// DCGM is what is done for NVIDIA's exporter.
type DCGM struct {
	JobMappingDir string // where the files lie that say which jobs a GPU has; empty: nowhere
}

// Commands says whose command lines a user is shown.
type Commands string

// The values of commands in [privacy].
const (
	CommandsAll Commands = "all"
	CommandsOwn Commands = "own" // of others' programs the name alone; root is shown all
)

// contextGuess is about what a context takes of a large device, and more than of a small one.
const contextGuess = 512 << 20

// Defaults returns the configuration of a machine without any file: every default said,
// so that String shows them.
func Defaults() *Config {
	policy := rules.DefaultPolicy()
	policy.Defaults.OnFull = rules.OnFullDeny
	policy.Defaults.WaitTimeout = rules.DefaultWaitTimeout
	policy.AgeAfter = rules.DefaultAgeAfter
	policy.DeadlockGrace = rules.DefaultDeadlockGrace
	policy.ContextGuess = accounting.Size{Bytes: contextGuess}
	return &Config{Policy: policy, OnLoss: LossOpen, Commands: CommandsAll}
}

// Load reads the file at path and the conf.d/*.toml beside it. With path "" it reads
// DefaultPath, which need not exist (its conf.d is read all the same); a file that is
// named must. The error is always Mistakes: all of them, of all files, those that
// cannot be read included.
func Load(path string) (*Config, error) { return load(path).finish() }

// load reads the files of Load.
func load(path string) *loader {
	named := path != ""
	if !named {
		path = DefaultPath
	}
	loader := newLoader()
	for _, file := range loader.paths(path, named) {
		data, err := readFile(file)
		loader.file(file, data, err, file == path)
	}
	return loader
}

// paths returns the files to read, the main one first.
func (l *loader) paths(path string, named bool) []string {
	var files []string
	if _, err := os.Stat(path); named || !errors.Is(err, fs.ErrNotExist) {
		files = append(files, path) // another error comes back when it is read
	}
	folder := filepath.Join(filepath.Dir(path), dropInFolder)
	entries, err := os.ReadDir(folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		l.unreadable(folder, err)
	}
	for _, entry := range entries { // sorted by name
		if strings.HasSuffix(entry.Name(), ".toml") && !strings.HasPrefix(entry.Name(), ".") {
			files = append(files, filepath.Join(folder, entry.Name()))
		}
	}
	return files
}

func readFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("it is longer than %d bytes", maxFile)
	}
	return data, err
}
