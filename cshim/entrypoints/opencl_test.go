package entrypoints

import (
	"debug/elf"
	"path/filepath"
	"strings"
	"testing"
)

// This file shows that each function of the system's OpenCL loader is wrapped, or has a reason in
// testdata/opencl.tsv. inventory_test.go does so for CUDA and NVML.

// passesFor lists the reasons why functions of OpenCL are not wrapped.
var passesFor = map[string]string{
	"command":  "it works on what was taken, or waits for that",
	"object":   "it makes, changes or ends what has no device memory of its own that anybody names",
	"part":     "what it makes is part of another object",
	"question": "it tells nothing of how much memory there is",
	"sharing":  "the memory is another API's, which made it",
}

// TestOpenCLIsWhole checks that each function that the system's OpenCL loader exports is wrapped,
// or has a reason not to be.
func TestOpenCLIsWhole(t *testing.T) {
	hooked := map[string]bool{}
	for _, m := range row.FindAllStringSubmatch(read(t, "../opencl/hooks.def"), -1) {
		if m[1] == "HOOK" {
			hooked[m[2]] = true
		}
	}
	passes := map[string]bool{}
	for line := range strings.Lines(read(t, filepath.Join("testdata", "opencl.tsv"))) {
		symbol, reason, _ := strings.Cut(strings.TrimSpace(line), "\t")
		if passesFor[reason] == "" || hooked[symbol] || passes[symbol] {
			t.Errorf("opencl.tsv: %q has no reason, is wrapped, or is there twice", line)
		}
		passes[symbol] = true
	}
	loaders, _ := filepath.Glob("/usr/lib/*/libOpenCL.so.1")
	if len(loaders) == 0 {
		t.Fatal("there is no libOpenCL.so.1: run `tools/setup.sh test` first")
	}
	f, err := elf.Open(loaders[0])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range symbols {
		if s.Section != elf.SHN_UNDEF && strings.HasPrefix(s.Name, "cl") && !hooked[s.Name] && !passes[s.Name] {
			t.Errorf("%s is neither wrapped nor in opencl.tsv", s.Name)
		}
	}
}
