package inventory

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// This file checks the devices and readings of AMD and Intel GPUs. testdata/mixed is a copy of the files that the
// kernel's DRM drivers show in sysfs; the tests remove and damage some of them.

func nothingTaken(string) bool { return false }

func TestDRM(t *testing.T) {
	list, reason := openDRM("testdata/mixed", nothingTaken)
	var got []string
	for _, f := range list {
		d := f.device
		u, err := f.source.usage()
		got = append(got, fmt.Sprintf("%d %s %d %q %q %q %s %d %v %v %v", d.Index, d.Vendor, d.Ordinal, d.Name, d.UUID, d.UUIDBytes,
			d.PCI, d.Total, u.Lost, u.ProcessesKnown, err))
	}
	zero := strings.Repeat(`\x00`, 16)
	want := []string{
		`-1 amd 0 "AMD GPU 0x73bf" "" "` + zero + `" 0000:03:00.0 17163091968 false false <nil>`,
		`-1 amd 1 "Radeon RX 7900 XTX" "GPU-7ab3c1d2e4f50617" "7ab3c1d2e4f50617" 0000:43:00.0 25753026560 false false <nil>`,
		`-1 intel 0 "Intel GPU 0x56a0" "" "` + zero + `" 0000:44:00.0 17179869184 false false <nil>`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, says := range []string{"card0 (0000:00:02.0) has no memory", "card3 (0000:81:00.0) is NVIDIA's"} {
		if !strings.Contains(reason, says) {
			t.Errorf("%q is not in %q", says, reason)
		}
	}
}

// TestDRMOrdinals: a skipped card keeps its number, because the vendor's own tools count it.
func TestDRMOrdinals(t *testing.T) {
	root := t.TempDir()
	if err := os.CopyFS(root, os.DirFS("testdata/mixed")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(root, "class/drm/card10/device/mem_info_vram_total")); err != nil {
		t.Fatal(err)
	}
	list, _ := openDRM(root, nothingTaken)
	if len(list) != 2 {
		t.Fatalf("%d devices: %+v", len(list), list)
	}
	for i, want := range []Device{{Index: anyIndex, Vendor: "amd", Ordinal: 1}, {Index: anyIndex, Vendor: "intel", Ordinal: 0}} {
		if d := list[i].device; d.Index != want.Index || d.Vendor != want.Vendor || d.Ordinal != want.Ordinal {
			t.Errorf("%s %d has ordinal %d, want %+v", d.Vendor, d.Index, d.Ordinal, want)
		}
	}
}

func TestDRMSkipsKnownAddress(t *testing.T) {
	list, reason := openDRM("testdata/mixed", func(pci string) bool { return pci == "0000:81:00.0" || pci == "0000:43:00.0" })
	if len(list) != 2 || strings.Contains(reason, "NVIDIA") {
		t.Errorf("%d devices, %q", len(list), reason)
	}
}

func TestDRMLost(t *testing.T) {
	root := t.TempDir()
	if err := os.CopyFS(root, os.DirFS("testdata/mixed")); err != nil {
		t.Fatal(err)
	}
	list, _ := openDRM(root, nothingTaken)
	for _, f := range list {
		card := f.source.(*drmSource).dir
		if err := os.RemoveAll(filepath.Join(card, "device")); err != nil {
			t.Fatal(err)
		}
		if u, err := f.source.usage(); err != nil || !u.Lost {
			t.Errorf("%s was removed: %+v, %v", card, u, err)
		}
	}
}

func TestDRMBroken(t *testing.T) {
	root := t.TempDir()
	if err := os.CopyFS(root, os.DirFS("testdata/mixed")); err != nil {
		t.Fatal(err)
	}
	device := filepath.Join(root, "class/drm/card1/device")
	list, _ := openDRM(root, nothingTaken)
	if err := os.WriteFile(device+"/mem_info_vram_used", []byte("a lot\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if u, err := list[1].source.usage(); err == nil {
		t.Errorf("rubbish was taken: %+v", u)
	}
	if err := os.WriteFile(device+"/mem_info_vram_total", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if again, reason := openDRM(root, nothingTaken); len(again) != len(list)-1 || !strings.Contains(reason, "card1") {
		t.Errorf("%d devices, %q", len(again), reason)
	}
}

func TestNoDRM(t *testing.T) {
	if list, reason := openDRM(t.TempDir(), nothingTaken); len(list) != 0 || reason != "" {
		t.Errorf("%v, %q", list, reason)
	}
}
