package structure

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/bounded"
)

// This file checks what make says to a user without a suitable Go. targets_test.go has the other targets and
// messages.

// TestNoGo: if Go is missing or too old, make says so before it does anything else, and fails.
func TestNoGo(t *testing.T) {
	old := filepath.Join(t.TempDir(), "go")
	if err := os.WriteFile(old, []byte("#!/bin/sh\necho go1.19.8\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for toolchain, want := range map[string]string{
		"/nowhere/go": "gpuarb: no Go toolchain in PATH (\"/nowhere/go\"). Go 1.",
		old:           "gpuarb: " + old + " is Go 1.19.8. Go 1.",
	} {
		for _, target := range []string{"all", "build", "test", "demo"} {
			cmd := bounded.Command(t, bounded.Patience, "make", "--no-print-directory", "GO="+toolchain, "BUILD="+t.TempDir(), target)
			cmd.Dir = root
			out, err := cmd.CombinedOutput()
			if err == nil || cmd.ProcessState.ExitCode() != 2 || !strings.HasPrefix(string(out), want) || !strings.Contains(string(out), "https://go.dev/dl") {
				t.Errorf("make GO=%s %s: %v\n%s", toolchain, target, err, out)
			}
		}
	}
}
