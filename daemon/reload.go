package daemon

// This file reads the configuration again and applies it. cmd/gpuarbd calls Reload on SIGHUP. lastgood.go keeps the
// configuration on the disk.

import (
	"encoding/json"
	"errors"
	"os"

	"github.com/gpuarb/gpuarb/internal/config"
	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/internal/worker"
)

// Reload reads the configuration again and applies it. If it has mistakes, the old configuration stays in force.
func (d *Daemon) Reload() {
	d.notify("RELOADING=1")
	defer d.notify("READY=1")
	cfg, path, err := d.load()
	if err != nil {
		d.log.Error("the configuration has mistakes: the old one stays in force", "err", err)
		var mistakes config.Mistakes
		errors.As(err, &mistakes)
		d.lock()
		d.configured.Mistakes = firstMistakes(mistakes)
		d.unlock()
		return
	}
	d.lock()
	if d.stopping() {
		d.unlock()
		return
	}
	d.arb.SetPolicy(d.now(), cfg.Policy)
	d.dropRuleLimitsLocked()
	d.applyConfig(cfg, path)
	d.publishAllLimitsLocked()
	d.unlock()
	d.history.SetNamesOnly(cfg.Commands == config.CommandsOwn && os.Geteuid() == 0)
	d.page.Set(wantedPage(cfg, d.listener.Path()))
	d.archive.Set(d.wantedArchive(cfg))
	d.log.Info("configuration read again", "files", cfg.Files)
	d.keepConfig()
}

// keepConfig keeps the current configuration on the disk, for a start at which the files have mistakes.
func (d *Daemon) keepConfig() {
	d.keeping.Lock()
	defer d.keeping.Unlock()
	d.lock()
	is, cfg := d.configured, d.config.Load()
	d.unlock()
	if is.Mistakes != "" {
		return // the configuration in force is the kept one
	}
	if err := d.keepGood(is.Path, cfg); err != nil {
		d.log.Warn("the configuration cannot be kept: if the files have a mistake at the next start, the daemon may not start", "err", err)
	}
}

// applyConfig puts a configuration in force, except for the arbiter's policy, which the caller sets.
func (d *Daemon) applyConfig(cfg *config.Config, path string) {
	d.config.Store(cfg)
	d.configured = figures.ConfigState{Path: path, Text: cfg.String()}
	signal(d.configChanged)
}

// wantedPage returns the address and the settings with which the page's process must run; the zero value: no page.
func wantedPage(c *config.Config, socket string) worker.Wanted {
	network, address := c.HTTP.Listen.Network()
	settings, err := json.Marshal(worker.PageSettings{Socket: socket, Hosts: c.HTTP.Hosts, Commands: string(c.Commands)})
	if err != nil || address == "" {
		return worker.Wanted{}
	}
	return worker.Wanted{Network: network, Address: address, Settings: string(settings)}
}

// pageJob describes the page's process.
var pageJob = worker.Job{Command: worker.PageCommand, User: "gpuarb-http", Connects: true, Done: "the page is served", Failed: "the page is not served"}
