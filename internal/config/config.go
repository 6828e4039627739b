package config

// This file has the types of a configuration and its defaults. load.go reads files, schema.go has
// the keys.

import (
	"strings"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// DefaultPath is the path of the configuration of the machine.
const DefaultPath = "/etc/gpuarb/gpuarb.toml"

// SchemaVersion is the schema_version that this version of gpuarb reads.
const SchemaVersion = 1

// OnLoss says what a program does if no daemon answers.
type OnLoss string

// The values of on_loss.
const (
	LossOpen   OnLoss = "open"   // continues without a limit
	LossClosed OnLoss = "closed" // gets no device memory
)

// Config is a complete configuration without mistakes.
type Config struct {
	Policy  rules.Policy
	OnLoss  OnLoss // for a program with only the library preloaded; under `gpuarb run` it is LossClosed
	HTTP    HTTP
	Metrics Metrics
	DCGM    DCGM
	History History
	// DriverLimits says whether the budgets of cgroups' jobs are also limits of the kernel or the vendor's driver.
	DriverLimits bool
	// Commands says which users see the arguments of a program.
	Commands Commands
	Files    []string // files that were read, in order; empty: built-in defaults
}

// HTTP says where the page and the metrics are served, and for which host names.
type HTTP struct {
	Listen Listen
	Hosts  []string // further host names of the page, in lower case
}

// Listen is an address to listen on: IP:PORT or unix:/PATH; "": none.
type Listen string

// Network splits an address for package net: into "tcp" or "unix", and the address.
func (l Listen) Network() (network, address string) {
	if path, ok := strings.CutPrefix(string(l), "unix:"); ok {
		return "unix", path
	}
	return "tcp", string(l)
}

// Metrics says which metrics are exported in addition to the usual ones.
type Metrics struct {
	Jobs bool // export the series of each job
}

// History says what is kept of jobs that have ended.
type History struct {
	Kept HistoryKept
	Size accounting.Bytes // largest size of the store
	Age  time.Duration    // jobs that ended longer ago are removed
}

// HistoryKept says whether a history is kept.
type HistoryKept string

// The values of history.
const (
	HistoryOn   HistoryKept = "on"
	HistoryNone HistoryKept = "none"
)

// Bounds of the history. At the least size a few thousand jobs fit.
const (
	defaultHistorySize accounting.Bytes = 1 << 30
	leastHistorySize   accounting.Bytes = 4 << 20
	defaultHistoryAge                   = 400 * 24 * time.Hour
	mostHistoryAge                      = 3650 * 24 * time.Hour
)

// DCGM has the settings for NVIDIA's dcgm-exporter.
type DCGM struct {
	JobMappingDir string // folder of the files that list the jobs of each GPU; "": none
}

// Commands says whose command lines a user sees.
type Commands string

// The values of commands in [privacy].
const (
	CommandsAll Commands = "all"
	CommandsOwn Commands = "own" // show only the name for programs of other users; root sees all
)

// contextGuess is about the memory that a context uses on a large device, in bytes. On a small
// device it uses less.
const contextGuess = 512 << 20

// Defaults returns the configuration of a machine without files. All defaults are set, so that
// String shows them.
func Defaults() *Config {
	policy := rules.DefaultPolicy()
	policy.Defaults.OnFull = rules.OnFullDeny
	policy.Defaults.WaitTimeout = rules.DefaultWaitTimeout
	policy.Defaults.AgeAfter = rules.NoTimeout
	policy.Defaults.IdleWarn, policy.Defaults.AgeWarn = rules.NoTimeout, rules.NoTimeout
	policy.DeadlockGrace = rules.DefaultDeadlockGrace
	policy.EvictAfter = rules.NoTimeout
	policy.Defaults.Evict = rules.Evict{How: rules.EvictNever, IdleAfter: rules.DefaultEvictIdle, MinResident: rules.DefaultEvictResident, Timeout: rules.DefaultEvictTimeout}
	policy.ContextGuess = accounting.Size{Bytes: contextGuess}
	return &Config{Policy: policy, OnLoss: LossOpen, Commands: CommandsAll, History: History{HistoryOn, defaultHistorySize, defaultHistoryAge}}
}
