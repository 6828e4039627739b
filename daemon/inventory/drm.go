package inventory

// This file finds and reads AMD and Intel GPUs in DRM's files in sysfs. inventory.go and scan.go call it. It reads
// the files itself: package sysfs of prometheus/procfs knows only amdgpu, reads at most ten cards, and fails for all
// cards if one is unusual.

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// PCI vendor numbers.
const (
	pciNVIDIA = 0x10de
	pciAMD    = 0x1002
	pciIntel  = 0x8086
)

// drmCard is a folder class/drm/cardN of a PCI device.
type drmCard struct {
	name   string // cardN
	dir    string // …/class/drm/cardN
	vendor uint64
	pci    string
}

// openDRM finds the AMD and Intel devices. It skips cards at PCI addresses for which taken returns true: these were
// found before, or through their vendor's library.
func openDRM(root string, taken func(pci string) bool) (list []foundDevice, reason string) {
	cards, err := drmCards(filepath.Join(root, "class/drm"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		reason = fmt.Sprintf("DRM: %v", err)
	}
	var reasons []string
	reasons = appendReason(reasons, reason)
	var amd, intel []foundDevice
	amdCards, intelCards := 0, 0
	for _, c := range cards {
		var skipped string
		switch known := taken(c.pci); {
		case c.vendor == pciAMD:
			if !known {
				amd, skipped = appendCard(amd, c, amdCards, amdMemory, describeAMD)
			}
			amdCards++ // ROCm also counts a card that is skipped here
		case c.vendor == pciIntel && known:
			intelCards++
		case c.vendor == pciIntel:
			// Level Zero numbers integrated GPUs after all others, so that an integrated GPU, which is skipped here,
			// takes no number.
			if intel, skipped = appendCard(intel, c, intelCards, intelMemory, describeIntel); skipped == "" {
				intelCards++
			}
		case c.vendor == pciNVIDIA && !known:
			skipped = fmt.Sprintf("DRM: %s (%s) is NVIDIA's, and NVML does not know it", c.name, c.pci)
		}
		reasons = appendReason(reasons, skipped)
	}
	return append(amd, intel...), strings.Join(reasons, "; ")
}

// drmCards lists the cards in the order of their PCI addresses, in which the vendors' libraries number them.
func drmCards(dir string) ([]drmCard, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var cards []drmCard
	for _, e := range entries {
		number, isCard := strings.CutPrefix(e.Name(), "card")
		if _, err := strconv.ParseUint(number, 10, 32); !isCard || err != nil {
			continue // a connector, a render node, or the file version
		}
		c := drmCard{name: e.Name(), dir: filepath.Join(dir, e.Name())}
		text, err := readText(filepath.Join(c.dir, "device/vendor"))
		if err != nil {
			continue // not a PCI device: a virtual display or a system on a chip
		}
		if c.vendor, err = strconv.ParseUint(text, 0, 16); err != nil {
			continue
		}
		uevent, err := readText(filepath.Join(c.dir, "device/uevent"))
		if err != nil {
			continue
		}
		c.pci = strings.ToLower(ueventValue(uevent, "PCI_SLOT_NAME"))
		cards = append(cards, c)
	}
	slices.SortFunc(cards, func(a, b drmCard) int { return strings.Compare(a.pci, b.pci) })
	return cards, nil
}

// ueventValue returns the value of a line KEY=value in a uevent file, or "".
func ueventValue(text, key string) string {
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "="); ok && k == key {
			return v
		}
	}
	return ""
}

// drmMemory lists the files with a card's total and used memory; used is empty if the driver has no such file.
type drmMemory struct{ total, used []string }

func amdMemory(c drmCard) drmMemory {
	return drmMemory{
		total: []string{filepath.Join(c.dir, "device/mem_info_vram_total")},
		used:  []string{filepath.Join(c.dir, "device/mem_info_vram_used")},
	}
}

func intelMemory(c drmCard) drmMemory {
	// xe has one file for each tile, i915 has one for each card; neither has one for integrated graphics.
	tiles, _ := filepath.Glob(filepath.Join(c.dir, "device/tile*/physical_vram_size_bytes"))
	switch local := filepath.Join(c.dir, "lmem_total_bytes"); {
	case len(tiles) > 0:
		return drmMemory{total: tiles}
	case exists(local):
		return drmMemory{total: []string{local}}
	}
	return amdMemory(c) // a later driver may name its files as AMD's driver does
}

// appendCard appends a card as a device, or returns the reason why the card is not usable.
func appendCard(list []foundDevice, c drmCard, ordinal int, where func(drmCard) drmMemory, describe func(*Device, drmCard)) ([]foundDevice, string) {
	memory := where(c)
	total, err := sumFiles(memory.total)
	if err != nil || total == 0 {
		return list, fmt.Sprintf("DRM: %s (%s) has no memory of its own, or its driver does not say how much", c.name, c.pci)
	}
	d := Device{Index: anyIndex, Ordinal: ordinal, PCI: c.pci, Total: total}
	describe(&d, c)
	src := &drmSource{dir: c.dir}
	if _, err := sumFiles(memory.used); err == nil {
		src.used = memory.used
	}
	return append(list, foundDevice{d, src}), ""
}

func describeAMD(d *Device, c drmCard) {
	d.Vendor = "amd"
	d.Name = productName(c, "AMD GPU")
	if id, err := readText(filepath.Join(c.dir, "device/unique_id")); err == nil && len(id) == len(d.UUIDBytes) {
		d.UUID = "GPU-" + id
		copy(d.UUIDBytes[:], id)
	}
}

func describeIntel(d *Device, c drmCard) {
	d.Vendor = "intel"
	d.Name = productName(c, "Intel GPU")
}

// productName returns the card's own name, or its kind with the PCI device number.
func productName(c drmCard, kind string) string {
	if name, err := readText(filepath.Join(c.dir, "device/product_name")); err == nil && name != "" {
		return name
	}
	if id, err := readText(filepath.Join(c.dir, "device/device")); err == nil {
		return fmt.Sprintf("%s %s", kind, id)
	}
	return kind
}

// drmSource reads a card's state. sysfs does not report which processes use the card.
type drmSource struct {
	dir  string
	used []string
}

func (s *drmSource) utilisation() map[int]int { return nil }

func (s *drmSource) usage() (Usage, error) {
	_, err := sumFiles(s.used) // the files are gone if the card is lost
	if err == nil && exists(filepath.Join(s.dir, "device/vendor")) {
		return Usage{}, nil
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) {
		return Usage{Lost: true}, nil
	}
	return Usage{}, err
}

// sumFiles adds the numbers in files that have one number each.
func sumFiles(paths []string) (sum uint64, err error) {
	for _, path := range paths {
		text, err := readText(path)
		if err != nil {
			return 0, err
		}
		n, err := strconv.ParseUint(text, 0, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", path, err)
		}
		sum += n
	}
	return sum, nil
}
