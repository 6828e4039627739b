// Command sbom writes a bill of materials to stdout, in the format of SPDX 2.3: the programs of a package, and the modules
// that Go has recorded in each program. The programs must be accompanied by the licences of these modules: sbom writes them to
// the file -licences, unless there are none. tools/packages/build.sh calls it.
package main

// This file reads the programs. licences.go has the licences of their parts, and document.go the format of SPDX.

import (
	"bytes"
	"crypto/sha1" // SPDX asks for it; it protects nothing
	"crypto/sha256"
	"debug/buildinfo"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// gpuarb is the module of this checkout. Modules in folders below have this name and their folder's.
const gpuarb = "github.com/gpuarb/gpuarb"

// part is a library that one program or several programs contain.
type part struct {
	name, version string
	licence       licence
}

// program is a built file of the package.
type program struct {
	name         string // path in the package
	sha1, sha256 string
	parts        []string // names of its parts
}

func main() {
	name := flag.String("name", "", "name of the package")
	version := flag.String("version", "", "version of the release")
	epoch := flag.Int64("time", 0, "time of the release, in seconds")
	libc := flag.String("libc", "", "version of the C library in static programs")
	licences := flag.String("licences", "", "write the licences of all parts to this file")
	flag.Parse()
	if err := run(*name, *version, time.Unix(*epoch, 0).UTC(), *libc, *licences, flag.Args()); err != nil {
		fmt.Fprintf(os.Stderr, "sbom: %v\n", err)
		os.Exit(1)
	}
}

// run writes both documents. The arguments are pairs "NAME=FILE": a program's path in the package, and the built file.
func run(name, version string, at time.Time, libc, licences string, pairs []string) error {
	parts := make(map[string]part)
	var programs []program
	for _, pair := range pairs {
		path, file, ok := strings.Cut(pair, "=")
		if !ok {
			return fmt.Errorf("argument %q is not of the form NAME=FILE", pair)
		}
		p, err := examine(path, file, libc, parts)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		programs = append(programs, p)
	}
	list := make([]part, 0, len(parts))
	for _, p := range parts {
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b part) int { return strings.Compare(a.name, b.name) })
	if len(list) > 0 {
		if err := os.WriteFile(licences, licenceTexts(list), 0o644); err != nil {
			return err
		}
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetIndent("", "  ")
	if err := e.Encode(document(name, version, at, programs, list)); err != nil {
		return err
	}
	_, err := out.WriteTo(os.Stdout)
	return err
}

// examine reads a program, and adds its parts to the table.
func examine(name, file, libc string, parts map[string]part) (program, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return program{}, err
	}
	one, two := sha1.Sum(text), sha256.Sum256(text)
	p := program{name: name, sha1: hex.EncodeToString(one[:]), sha256: hex.EncodeToString(two[:])}
	info, err := buildinfo.ReadFile(file)
	if err != nil { // written in C, and linked to nothing but the machine's C library
		return p, nil
	}
	add := func(name, version, folder string) error {
		if _, found := parts[name]; !found {
			l, err := readLicence(folder)
			if err != nil {
				return fmt.Errorf("%s %s: %w", name, version, err)
			}
			parts[name] = part{name, version, l}
		}
		p.parts = append(p.parts, name)
		return nil
	}
	goroot, err := goOutput("env", "GOROOT")
	if err != nil {
		return p, err
	}
	if err := add("stdlib", strings.TrimPrefix(info.GoVersion, "go"), goroot); err != nil {
		return p, err
	}
	// The folder of the main module in this checkout: "." for gpuarb.
	checkout := filepath.Join(".", strings.TrimPrefix(info.Main.Path, gpuarb))
	for _, m := range info.Deps {
		if m.Path == gpuarb {
			continue // this checkout is the program itself
		}
		folder, err := goOutput("list", "-C", checkout, "-m", "-f", "{{.Dir}}", m.Path)
		if err != nil {
			return p, err
		}
		if err := add(m.Path, m.Version, folder); err != nil {
			return p, err
		}
	}
	if !slices.Contains(info.Settings, debug.BuildSetting{Key: "CGO_ENABLED", Value: "1"}) {
		return p, nil // uses no C library
	}
	if isStatic, err := static(file); err != nil || !isStatic {
		return p, err
	}
	parts[cLibrary] = part{cLibrary, libc, licence{id: "LGPL-2.1-or-later", text: lgplNotice}}
	p.parts = append(p.parts, cLibrary)
	return p, nil
}

// static reports whether the C library is linked into a program, so that no loader starts it.
func static(file string) (bool, error) {
	f, err := elf.Open(file)
	if err != nil {
		return false, err
	}
	defer f.Close()
	return !slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }), nil
}
