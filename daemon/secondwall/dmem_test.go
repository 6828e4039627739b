package secondwall

import (
	"strings"
	"testing"
)

// This file checks which regions are the memory of a device, and that the parser withstands any text. tests/secondwall checks the rest
// of the package.

// TestRegions: the region of a device is found by the PCI address, whichever driver named the region, and with any number of zeros
// before the address.
func TestRegions(t *testing.T) {
	for region, want := range map[string]bool{
		"drm/0000:03:00.0/vram0":         true,
		"drm/0000:03:00.0/vram":          true,
		"nvidia/00000000:03:00.0/vidmem": true,
		"drm/0000:03:00.0/stolen":        false,
		"drm/0000:03:00.0/vram0x":        false,
		"drm/0000:03:00.0/xvram0":        false,
		"drm/0000:03:00.1/vram0":         false,
		"drm/0001:03:00.0/vram0":         false,
		"drm/vram0":                      false,
		"":                               false,
	} {
		if got := isMemoryOf(region, "0000:03:00.0"); got != want {
			t.Errorf("%q: %v", region, got)
		}
	}
	if isMemoryOf("drm//vram0", "") {
		t.Error("a device without an address has a region")
	}
}

// FuzzLines: the parser either refuses a text, or returns regions whose names are not empty and have no spaces.
func FuzzLines(f *testing.F) {
	for _, text := range []string{"drm/0000:03:00.0/vram0 max\n", "a 1\nb 18446744073709551616\n", "a", " \n\x00 5", "a -1", "a 0x10"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		values, err := parseLines("dmem.max", text)
		if err != nil {
			return
		}
		for region := range values {
			if region == "" || strings.ContainsAny(region, " \n") {
				t.Errorf("%q has the region %q", text, region)
			}
		}
	})
}
