package structure

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/bounded"
)

// This file runs targets of make, tools/setup.sh and tests/demo/demo.sh with false tools in PATH, and checks
// what they build, print and ask for. toolchain_test.go has the check for Go.

// TestGPUTestsNeedACompilerAlone: what `make test-gpu` builds before it uses the
// GPU needs only the programs that its set-up installs, and nothing of Python's.
func TestGPUTestsNeedACompilerAlone(t *testing.T) {
	cmd := bounded.Command(t, bounded.Patience, "make", "--dry-run", "--always-make", "test-gpu")
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for pattern, want := range map[string]bool{`(?i)python`: false, `cudaprog-gpa`: true, `libgpuarb\.so`: true} {
		if got := regexp.MustCompile(pattern).Match(out); got != want {
			t.Errorf("%s in what is built: %v, want %v", pattern, got, want)
		}
	}
}

// TestBuildPrintsALineAFile: make prints one line for each built file. V=1 shows the commands, and -s prints nothing.
func TestBuildPrintsALineAFile(t *testing.T) {
	for _, row := range []struct {
		argument, line string
		lines          int
	}{
		{"V=0", `^LD \S+/bench/(ask|crowd|spawn|empty\.so)$`, 4},
		{"V=1", `^gcc -std=c11 .* -o \S+/bench/\S+ `, 4},
		{"-s", `^$`, 0},
	} {
		t.Run(row.argument, func(t *testing.T) {
			cmd := bounded.Command(t, bounded.Patience, "make", "--no-print-directory", row.argument, "BUILD="+t.TempDir(), "CC=gcc", "bench-programs")
			cmd.Dir = root
			cmd.Env = withoutMake(os.Environ())
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			lines := strings.FieldsFunc(string(out), func(r rune) bool { return r == '\n' })
			if len(lines) != row.lines {
				t.Errorf("%d lines, want %d:\n%s", len(lines), row.lines, out)
			}
			for _, line := range lines {
				if !regexp.MustCompile(row.line).MatchString(line) {
					t.Errorf("%q, want %s", line, row.line)
				}
			}
		})
	}
}

// TestDemoFailsWithTheLog: `make demo` does not show the output of the build before it, unless the build fails.
func TestDemoFailsWithTheLog(t *testing.T) {
	for status, shown := range map[string]bool{"0": false, "1": true} {
		fake := filepath.Join(t.TempDir(), "make")
		// It builds nothing; the demonstration ends for want of a daemon then, whatever is installed.
		none := filepath.Join(filepath.Dir(fake), "gpuarbd")
		if err := os.WriteFile(none, []byte("#!/bin/sh\nexit 1\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		script := "#!/bin/sh\necho a line of the build\nexit " + status + "\n"
		if err := os.WriteFile(fake, []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
		demo := t.TempDir()
		if err := os.MkdirAll(filepath.Join(demo, "tests", "demo"), 0o700); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(root, "tests", "demo", "demo.sh"))
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(demo, "tests", "demo", "demo.sh")
		if err := os.WriteFile(path, text, 0o700); err != nil {
			t.Fatal(err)
		}
		cmd := bounded.Command(t, bounded.Patience, "bash", path)
		cmd.Env = []string{"PATH=" + filepath.Dir(fake) + ":/usr/bin:/bin", "MAKE=" + fake, "GPUARB_SOCKET=/nowhere"}
		out, err := cmd.CombinedOutput()
		if err == nil {
			t.Fatalf("the test with the hung program has not failed:\n%s", out)
		}
		if got := strings.Contains(string(out), "a line of the build"); got != shown {
			t.Errorf("the build's status %s, its output shown: %v, want %v:\n%s", status, got, shown, out)
		}
	}
}

// TestSetupAsksTheCompiler: tools/setup.sh asks the clang in use whether it finds the sanitizers' runtime. Other
// releases of LLVM on the machine do not count.
func TestSetupAsksTheCompiler(t *testing.T) {
	dir := t.TempDir()
	runtime := filepath.Join(dir, "runtime")
	for path, text := range map[string]string{
		"clang": "case $1 in -print-runtime-dir) echo " + runtime + ";; -dumpversion) echo 15.0.6;; esac",
		"id":    "echo 1000", // nothing is installed
		"go":    "",
	} {
		if err := os.WriteFile(filepath.Join(dir, path), []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, there := range []bool{false, true} {
		if there {
			if err := os.MkdirAll(runtime, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(runtime, "libclang_rt.fuzzer-x86_64.a"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		cmd := bounded.Command(t, bounded.Patience, filepath.Join(root, "tools", "setup.sh"), "test")
		cmd.Env = []string{"PATH=" + dir + ":/usr/bin:/bin"}
		out, err := cmd.CombinedOutput()
		if named := strings.Contains(string(out), " libclang-rt-15-dev"); named == there {
			t.Errorf("the runtime is there: %v; setup names its package: %v (%v)\n%s", there, named, err, out)
		}
	}
}

// withoutMake returns an environment without the variables that a calling make sets.
func withoutMake(env []string) []string {
	var kept []string
	for _, kv := range env {
		if name, _, _ := strings.Cut(kv, "="); name != "MAKEFLAGS" && name != "MFLAGS" && name != "MAKELEVEL" && name != "V" && name != "BUILD" {
			kept = append(kept, kv)
		}
	}
	return kept
}
