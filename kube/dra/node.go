package dra

// This file reads the GPUs of the node from the daemon. offer.go describes them to the scheduler, and claim.go looks up the GPUs of a
// claim among them.

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/gpuarb/gpuarb/ipc"
)

// patience is the longest time that connecting to the daemon and reading its snapshot may take together.
const patience = 5 * time.Second

// gpu is a GPU, or a MIG instance of one, with the fields of the daemon's snapshot that the driver needs
// (docs/reference/snapshot.schema.json). Amounts of memory are in bytes.
type gpu struct {
	Index        int    `json:"index"`
	Vendor       string `json:"vendor"`
	Product      string `json:"name"`
	UUID         string `json:"uuid"`
	PCI          string `json:"pci"`
	Lost         bool   `json:"lost"`
	Unresponsive bool   `json:"unresponsive"`
	Total        uint64 `json:"total_bytes"`
	Reserve      uint64 `json:"reserve_bytes"`
	Context      uint64 `json:"context_bytes"` // memory of one context, measured or assumed
	SlotsMax     uint64 `json:"slots_max"`     // 0: no limit
	Parent       *int   `json:"parent"`        // for a MIG instance, index of the GPU that it is a part of; nil: not an instance
	Unmanaged    []struct {
		Job   uint64 `json:"job"` // number of the job; 0: none
		Bytes uint64 `json:"bytes"`
	} `json:"unmanaged_by"`
}

// id returns the GPU's UUID, or its PCI address if it has no UUID. After a restart of the node, the GPU has the same id.
func (g *gpu) id() string {
	if g.UUID != "" {
		return g.UUID
	}
	return g.PCI
}

// name returns the name of the GPU's DRA device: its id in lower case, with "-" for each character that Kubernetes does not allow, cut to
// 63 characters. If the id is a PCI address, "pci-" stands before it.
func (g *gpu) name() string {
	allowed := func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}
	name := strings.Map(allowed, strings.ToLower(g.id()))
	if g.UUID == "" {
		name = "pci-" + name
	}
	return strings.Trim(name[:min(len(name), 63)], "-")
}

// wrong returns the fault of the GPU in words for users; "": the GPU works.
func (g *gpu) wrong() string {
	switch {
	case g.Lost:
		return "the driver has lost the GPU"
	case g.Unresponsive:
		return "the GPU does not answer"
	}
	return ""
}

// gpus asks the daemon for its devices. It leaves out the processor, devices that have neither a UUID nor a PCI address, and GPUs that are
// divided into MIG instances. The instances themselves are returned.
func (d *Driver) gpus(ctx context.Context) ([]gpu, error) {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	client, err := ipc.DialAny(ctx, d.Sockets)
	if err != nil {
		return nil, fmt.Errorf("gpuarbd on this node: %w", err)
	}
	defer client.Close()
	text, err := client.Snapshot(ctx)
	if err != nil {
		return nil, fmt.Errorf("gpuarbd on this node does not answer: %w", err)
	}
	var state struct {
		Devices []gpu `json:"devices"`
	}
	if err := json.Unmarshal(text, &state); err != nil {
		return nil, fmt.Errorf("gpuarbd on this node: its snapshot: %w", err)
	}
	divided := map[int]bool{}
	for _, g := range state.Devices {
		if g.Parent != nil {
			divided[*g.Parent] = true
		}
	}
	var found []gpu
	for _, g := range state.Devices {
		if g.Vendor != "cpu" && !divided[g.Index] && g.id() != "" {
			found = append(found, g)
		}
	}
	return found, nil
}
