package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"
)

// Metrics says what is exported beyond the usual.
type Metrics struct {
	Jobs bool // the series of each job
}

// DCGM is what is done for NVIDIA's exporter.
type DCGM struct {
	JobMappingDir string // where the files lie that say which jobs a GPU has; empty: nowhere
}

// readJobs reads whether jobs have series of their own.
func readJobs(d *draft, v value) error {
	if v.kind != unstable.Bool {
		return v.wrongType("true or false")
	}
	jobs := v.text == "true"
	d.jobs = &jobs
	return nil
}

// readJobMappingDir reads a folder; the empty text is none, by which a later file takes it back.
func readJobMappingDir(d *draft, v value) error {
	if v.kind != unstable.String {
		return v.wrongType(`a folder ("/run/gpuarb/dcgm"), or "" for none`)
	}
	if v.text != "" && !filepath.IsAbs(v.text) || strings.ContainsRune(v.text, 0) {
		return errors.New("the path must be absolute")
	}
	dir := v.text
	if dir != "" {
		dir = filepath.Clean(dir)
	}
	d.jobMappingDir = &dir
	return nil
}

// write spells the section as a file has it.
func (m Metrics) write(b *strings.Builder) {
	fmt.Fprintf(b, "\n[metrics]\njobs = %t\n", m.Jobs)
}

// write spells the section as a file has it.
func (d DCGM) write(b *strings.Builder) {
	b.WriteString("\n[dcgm]\n")
	writeKey(b, "job_mapping_dir", d.JobMappingDir)
}
