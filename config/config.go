package config

import (
	"strings"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// DefaultPath is where the configuration of the machine is.
const DefaultPath = "/etc/gpuarb/gpuarb.toml"

// SchemaVersion is the schema_version that this version of gpuarb reads.
const SchemaVersion = 1

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

// HTTP is where the page and the metrics are served, and under which names.
type HTTP struct {
	Listen Listen
	Hosts  []string // further names by which browsers may call it, lower case
}

// Listen is an address that is listened on: IP:PORT, or unix:/PATH. Empty: none.
type Listen string

// Network splits an address as package net wants it: "tcp" or "unix".
func (l Listen) Network() (network, address string) {
	if path, ok := strings.CutPrefix(string(l), "unix:"); ok {
		return "unix", path
	}
	return "tcp", string(l)
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
	policy.Defaults.AgeAfter = rules.NoTimeout
	policy.DeadlockGrace = rules.DefaultDeadlockGrace
	policy.ContextGuess = accounting.Size{Bytes: contextGuess}
	return &Config{Policy: policy, OnLoss: LossOpen, Commands: CommandsAll}
}
