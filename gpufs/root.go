package gpufs

// This file has the root directory. mount.go calls it; subtrees.go, users.go and cgroups.go have the folders below.

import (
	"io"
	"slices"
	"strconv"

	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/internal/report"
)

// root makes the root directory, whose entries never change.
func (b *builder) root() *directory {
	version := func(w io.Writer, s figures.Snapshot) error {
		_, err := io.WriteString(w, report.Escape(s.Version)+"\n")
		return err
	}
	config := func(w io.Writer, s figures.Snapshot) error {
		_, err := io.WriteString(w, s.Config.Text)
		return err
	}
	entries := []entry{
		{name: "budgets", text: rendered(files.Budgets)},
		{name: "cgroups", dir: b.cgroup("/")},
		{name: "config", text: rendered(config)},
		{name: "devices", dir: b.devices()},
		{name: "holders", text: rendered(files.Holders)},
		{name: "jobs", dir: b.jobs()},
		{name: "leases", text: rendered(files.Leases), part: part{leases: true}},
		{name: "leases.json", text: rendered(report.LeasesJSON), part: part{leases: true}},
		{name: "processes", dir: b.processes()},
		{name: "queue", text: rendered(files.Queue)},
		{name: "stats", text: rendered(report.Stats)},
		{name: "unmanaged", text: rendered(files.Unmanaged)},
		{name: "users", dir: b.users()},
		{name: "version", text: rendered(version)},
	}
	if b.SelfOf != nil {
		entries = append(entries, entry{name: "self", link: b.self})
	}
	if b.Metrics != nil {
		entries = append(entries, entry{name: "metrics", text: rendered(b.Metrics)})
	}
	if b.History != nil {
		entries = append(entries, entry{name: "events", log: b.History})
	}
	slices.SortFunc(entries, byName)
	for i := range entries {
		entries[i].id = identity{kind: kindRoot, file: i + 1}
		entries[i].uid = b.uid
	}
	return &directory{fixed: true, list: func(*snapshot) ([]entry, bool) { return entries, true }}
}

// self returns the target of the link self: the folder of the calling thread's process, whether the process is a
// client or not.
func (b *builder) self(tid uint32) (string, bool) {
	pid, ok := b.SelfOf(tid)
	return "processes/" + strconv.Itoa(pid), ok
}
