package shim

// This file finds the library and gpuarb-probe, and reports whether a library can be used. launch.go
// computes the environment that names the library.

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
)

// LibraryName is the file name of the library.
const LibraryName = "libgpuarb.so"

const probeName = "gpuarb-probe"

// withoutExports is the folder, beside the library, of the second build, which exports no driver
// functions.
const withoutExports = "no-exports"

// LibraryPaths returns the paths at which the library may be, in the order of the search. If
// GPUARB_LIB is set, this is its path alone. Otherwise these are paths near the executable (an
// absolute path), then the paths of installations. env is os.Getenv.
func LibraryPaths(executable string, env func(string) string) []string {
	if path := env("GPUARB_LIB"); path != "" {
		if absolute, err := filepath.Abs(path); err == nil {
			path = absolute
		}
		return []string{path}
	}
	folder := filepath.Dir(executable)
	paths := []string{
		filepath.Join(folder, LibraryName),
		filepath.Join(folder, "../lib/gpuarb", LibraryName),
	}
	for _, installed := range []string{"/usr/local/lib/gpuarb", "/usr/lib/gpuarb", "/usr/lib/" + multiarch() + "/gpuarb"} {
		if path := filepath.Join(installed, LibraryName); !slices.Contains(paths, path) {
			paths = append(paths, path)
		}
	}
	return paths
}

// multiarch returns Debian's name for the architecture of this machine.
func multiarch() string {
	if runtime.GOARCH == "arm64" {
		return "aarch64-linux-gnu"
	}
	return "x86_64-linux-gnu"
}

// FindLibrary returns the first of LibraryPaths that the dynamic linker can preload. The error
// lists the paths with the reason for each. A file that the linker would skip with only a warning,
// for example of another architecture, counts as missing, because the program would run without any
// limit.
func FindLibrary(executable string, env func(string) string) (string, error) {
	return firstUsable(LibraryPaths(executable, env), LibraryName+" that can be preloaded", CheckLibrary)
}

// WithoutExports returns the path of the second build of a library that FindLibrary returned. The
// second build exports no driver functions. Programs need it if another library of theirs has
// variables with these names. The error says what is wrong with the file.
func WithoutExports(library string) (string, error) {
	path := library
	if !isWithoutExports(path) {
		path = OtherBuild(path)
	}
	if err := CheckLibrary(path); err != nil {
		return "", fmt.Errorf("no %s without exports (tried %s: %w)", LibraryName, path, reason(err))
	}
	return path, nil
}

func isWithoutExports(library string) bool {
	return filepath.Base(filepath.Dir(library)) == withoutExports
}

// FindProbe returns the program that shows what the library catches. It is in one of the folders of
// LibraryPaths. The error lists the paths with the reason for each.
func FindProbe(executable string, env func(string) string) (string, error) {
	paths := LibraryPaths(executable, env)
	for i := range paths {
		paths[i] = filepath.Join(filepath.Dir(paths[i]), probeName)
	}
	return firstUsable(paths, probeName, func(path string) error {
		_, err := exec.LookPath(path)
		return err
	})
}

// firstUsable returns the first path for which wrong returns nil.
func firstUsable(paths []string, what string, wrong func(path string) error) (string, error) {
	var tried []string
	for _, path := range paths {
		err := wrong(path)
		if err == nil {
			return path, nil
		}
		tried = append(tried, fmt.Sprintf("%s: %v", path, reason(err)))
	}
	return "", fmt.Errorf("no %s (tried %s)", what, strings.Join(tried, "; "))
}

// reason returns the system error in err, without the name of the file.
func reason(err error) error {
	var number syscall.Errno
	if errors.As(err, &number) {
		return number
	}
	return err
}

// CheckLibrary says why the dynamic linker could not load the library at path into a program of
// this machine. It checks the path and the header; nil: the library can be loaded.
func CheckLibrary(path string) error {
	if strings.ContainsFunc(path, separatesPreloads) {
		return errors.New("LD_PRELOAD cannot hold a path with a space or a colon")
	}
	file, err := os.Open(path)
	if err != nil {
		return reason(err)
	}
	defer file.Close()
	var head [20]byte
	if _, err := io.ReadFull(file, head[:]); err != nil {
		return errors.New("not a shared object")
	}
	return checkELF(head)
}

// checkELF checks the start of an ELF header: magic, class and byte order, then type and machine,
// which are 16-bit numbers at offsets 16 and 18.
func checkELF(head [20]byte) error {
	const sharedObject = 3
	machine := byte(62) // x86-64
	if runtime.GOARCH == "arm64" {
		machine = 183
	}
	switch {
	case !bytes.HasPrefix(head[:], []byte("\x7fELF")) || head[16] != sharedObject || head[17] != 0:
		return errors.New("not a shared object")
	case head[4] != 2 || head[5] != 1 || head[18] != machine || head[19] != 0:
		return errors.New("a shared object of another kind of machine")
	}
	return nil
}

// OtherBuild returns the path of the other build of a library, with exports or without.
func OtherBuild(library string) string {
	folder, name := filepath.Split(library)
	folder = filepath.Clean(folder)
	if isWithoutExports(library) {
		return filepath.Join(filepath.Dir(folder), name)
	}
	return filepath.Join(folder, withoutExports, name)
}

// PreloadsNoExports reports whether a value of LD_PRELOAD names the build without exports.
func PreloadsNoExports(list string) bool {
	return slices.ContainsFunc(strings.FieldsFunc(list, separatesPreloads), func(path string) bool {
		return isWithoutExports(path) && filepath.Base(path) == LibraryName
	})
}

func separatesPreloads(r rune) bool { return r == ':' || r == ' ' }
