//go:build full

package packages

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/tests/bounded"
)

// This file builds the releases and examines the first. rpm_full_test.go installs its .rpm.

// within limits the time of a build or an installation on a busy machine.
const within = 20 * time.Minute

// run runs a command in a folder, which must succeed, and returns what it prints.
func run(t *testing.T, folder, name string, args ...string) string {
	t.Helper()
	cmd := bounded.Command(t, within, name, args...)
	cmd.Dir = folder
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// release clones this checkout into a folder, builds a release there, and returns the folder of its files.
func release(t *testing.T, clone string, settings ...string) string {
	t.Helper()
	run(t, "../..", "git", "clone", "--quiet", ".", clone)
	args := append([]string{"-u", "MAKEFLAGS", "-u", "MAKELEVEL", "-u", "VERSION"}, settings...)
	run(t, clone, "env", append(args, "sh", "-c", "umask $UMASK; exec make -s release")...)
	return filepath.Join(clone, "build/release")
}

// only returns the file of a folder that matches a pattern.
func only(t *testing.T, folder, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(folder, pattern))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s in %s: %q, %v", pattern, folder, found, err)
	}
	return found[0]
}

// TestFullPackages: two clones in different folders, with different settings of their users, give the same release. Its packages
// pass the checks of the distributions, and the bill of materials lists what is in the programs.
func TestFullPackages(t *testing.T) {
	dir := t.TempDir()
	one := release(t, filepath.Join(dir, "one"), "UMASK=022")
	two := release(t, filepath.Join(dir, "another/place"), "UMASK=077", "TZ=Asia/Tokyo", "LANG=C.UTF-8", "USER=ann")
	if first, second := run(t, one, "cat", "SHA256SUMS"), run(t, two, "cat", "SHA256SUMS"); first != second {
		t.Errorf("two clones give two releases:\n%s\n\n%s", first, second)
	}
	t.Log(run(t, one, "sha256sum", "--check", "SHA256SUMS"))

	for name, files := range programs {
		t.Run(name, func(t *testing.T) {
			deb := only(t, one, name+"_*.deb")
			t.Log(run(t, one, "lintian", "--allow-root", "--fail-on", "error", deb))
			root := t.TempDir()
			run(t, root, "dpkg-deb", "--extract", deb, ".")
			checkBill(t, root, only(t, one, name+"-[0-9]*.spdx.json"), files)
			version := run(t, one, "dpkg-deb", "--field", deb, "Version")
			needs := run(t, one, "dpkg-deb", "--field", deb, "Depends")
			if same := "gpuarb (= " + version + ")"; strings.Contains(needs, same) != (name != "gpuarb") {
				t.Errorf("the package needs %s", needs)
			}
		})
	}
	t.Run("rpm", func(t *testing.T) {
		checkRPM(t, only(t, one, "gpuarb-[0-9]*.rpm"), only(t, one, "gpuarb-slurm-*.rpm"), only(t, one, "gpuarb-kube-*.rpm"))
	})
}

// programs has the programs and libraries of each package, which its bill of materials lists.
var programs = map[string][]string{
	"gpuarb":       {"usr/bin/gpuarb", "usr/bin/gpuarbd", "usr/lib/gpuarb/gpuarb-probe", "usr/lib/gpuarb/libgpuarb.so", "usr/lib/gpuarb/no-exports/libgpuarb.so"},
	"gpuarb-slurm": {"usr/lib/gpuarb-slurm/gpuarb.so"},
	"gpuarb-kube":  {"usr/bin/gpuarb-dra", "usr/bin/gpuarb-nri"},
}

type billedFile struct {
	ID        string `json:"SPDXID"`
	FileName  string
	Checksums []struct{ Algorithm, ChecksumValue string }
}

// bill is the part of an SPDX document that the test reads.
type bill struct {
	Packages []struct {
		ID           string `json:"SPDXID"`
		ExternalRefs []struct{ ReferenceLocator string }
	}
	Files         []billedFile
	Relationships []struct{ SPDXElementID, RelationshipType, RelatedSPDXElement string }
}

// checkBill compares the bill of materials with the programs in root, by what Go says about them. The bill must list the
// programs want.
func checkBill(t *testing.T, root, path string, want []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var b bill
	if err := json.Unmarshal(text, &b); err != nil {
		t.Fatal(err)
	}
	locator := make(map[string]string)
	for _, p := range b.Packages {
		for _, r := range p.ExternalRefs {
			locator[p.ID] = r.ReferenceLocator
		}
	}
	for _, f := range b.Files {
		program := filepath.Join(root, f.FileName)
		content, err := os.ReadFile(program)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(content)
		if got := fmt.Sprint(f.Checksums); !strings.Contains(got, hex.EncodeToString(sum[:])) {
			t.Errorf("%s has the checksums %s in the bill", f.FileName, got)
		}
		parts := make(map[string]bool)
		for _, r := range b.Relationships {
			if r.SPDXElementID == f.ID {
				parts[locator[r.RelatedSPDXElement]] = true
			}
		}
		modules := 0
		if strings.Contains(f.FileName, "/bin/") {
			for line := range strings.Lines(run(t, root, "go", "version", "-m", program)) {
				// The module of the plug-ins depends on gpuarb's own module, which is of this checkout: the bill need not list it.
				if field := strings.Fields(line); len(field) > 2 && field[0] == "dep" && field[1] != "github.com/gpuarb/gpuarb" {
					modules++
					if want := "pkg:golang/" + field[1] + "@" + field[2]; !parts[want] {
						t.Errorf("the bill of %s lacks %s", f.FileName, want)
					}
				}
			}
			if modules == 0 {
				t.Errorf("%s has no modules", f.FileName)
			}
		}
		t.Logf("%s: %d modules, %d parts", f.FileName, modules, len(parts))
	}
	for _, name := range want {
		if !slices.ContainsFunc(b.Files, func(f billedFile) bool { return f.FileName == "./"+name }) {
			t.Errorf("the bill lacks %s", name)
		}
	}
}
