package main

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/gpuarb/gpuarb/shim"
)

const driverName = "libcuda.so.1"

// driverFolders are where the dynamic linker looks when its cache has no answer.
var driverFolders = []string{
	"/lib64", "/usr/lib64", "/lib", "/usr/lib",
	"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
	"/usr/lib/wsl/lib",
}

func (d *doctor) checkDriver() {
	d.driver = d.findDriver()
	if d.driver == "" {
		d.found("driver", wrong, "install the NVIDIA driver of your distribution, and run ldconfig",
			"the dynamic linker finds no %s (LD_LIBRARY_PATH, its cache, the standard folders)", driverName)
		return
	}
	kernel, err := os.ReadFile(d.path("/proc/driver/nvidia/version"))
	if err != nil {
		d.found("driver", note, "load it with modprobe nvidia, if this machine has an NVIDIA GPU",
			"%s is there, but the kernel's NVIDIA driver is not loaded", d.driver)
		return
	}
	line, _, _ := strings.Cut(string(kernel), "\n")
	line = strings.TrimSpace(strings.TrimPrefix(line, "NVRM version:"))
	d.found("driver", fine, "", "%s; kernel: %s", d.driver, strings.Join(strings.Fields(line), " "))
}

// findDriver looks for libcuda.so.1 in the order of the dynamic linker.
func (d *doctor) findDriver() string {
	var paths []string
	for _, folder := range filepath.SplitList(d.getenv("LD_LIBRARY_PATH")) {
		if folder != "" {
			paths = append(paths, filepath.Join(folder, driverName))
		}
	}
	if cache, err := os.ReadFile(d.path("/etc/ld.so.cache")); err == nil {
		for _, path := range cached(cache, driverName) {
			paths = append(paths, d.path(path))
		}
	}
	for _, folder := range driverFolders {
		paths = append(paths, d.path(filepath.Join(folder, driverName)))
	}
	for _, path := range paths {
		if shim.CheckLibrary(path) == nil {
			return path
		}
	}
	return ""
}

// cached returns the paths that end in /name in the linker's cache. The cache ends
// with a table of strings, each closed by a zero byte; no more of it is needed.
func cached(cache []byte, name string) []string {
	var paths []string
	for _, text := range bytes.Split(cache, []byte{0}) {
		if bytes.HasPrefix(text, []byte("/")) && filepath.Base(string(text)) == name {
			paths = append(paths, string(text))
		}
	}
	return paths
}

func (d *doctor) checkShim() {
	library, err := shim.FindLibrary(d.executable, d.getenv)
	if err != nil {
		d.found("shim", wrong, "install gpuarb, or name the library with GPUARB_LIB", "%v", err)
		return
	}
	d.library = library
	switch complaint, err := d.preload(library); {
	case err != nil:
		d.found("shim", unknown, "", "%s is there; whether it loads could not be tried: %v", library, err)
	case complaint != "":
		d.found("shim", wrong, "build or install the library for this machine's libc", "%s does not load: %s", library, complaint)
	default:
		d.found("shim", fine, "", "%s loads", library)
	}
}

// preload starts a small program with the library. The dynamic linker complains on
// stderr when it cannot load it, and goes on without.
func (d *doctor) preload(library string) (complaint string, err error) {
	program := ""
	for _, path := range []string{"/bin/true", "/usr/bin/true", "/bin/ls"} {
		if dynamic(path) {
			program = path
			break
		}
	}
	if program == "" {
		return "", errors.New("no dynamically linked program to try it with")
	}
	ctx, cancel := context.WithTimeout(context.Background(), d.patience)
	defer cancel()
	command := exec.CommandContext(ctx, program)
	command.Env = []string{"LD_PRELOAD=" + library, "LC_ALL=C"}
	var stderr bytes.Buffer
	command.Stderr = &stderr
	err = command.Run()
	var exit *exec.ExitError
	if complaint = strings.TrimSpace(stderr.String()); complaint == "" && errors.As(err, &exit) {
		complaint = fmt.Sprintf("%s: %v", program, err)
	}
	if complaint != "" {
		err = nil
	}
	return complaint, err
}

// dynamic says whether a program has an interpreter, the dynamic linker.
func dynamic(path string) bool {
	file, err := elf.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	return slices.ContainsFunc(file.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
}

// taking are the names of the driver's functions that take device memory or streams,
// or that hand out such functions. Host memory is not gpuarb's.
var taking = regexp.MustCompile(`^cu(Mem(Alloc(Pitch|Managed|Async|FromPoolAsync)?|Create)|(Array|Array3D|MipmappedArray)Create|StreamCreate(WithPriority)?|GetProcAddress)(_v[0-9]+)?(_ptsz)?$`)

// essential are those of them without which a shim holds next to no program.
var essential = regexp.MustCompile(`^cu(MemAlloc|GetProcAddress)`)

// checkCatches compares what the driver offers with what the shim defines in its
// place. Whether a certain program is really caught, only running it shows.
func (d *doctor) checkCatches() {
	if d.driver == "" || d.library == "" {
		d.found("catches", unknown, "", "needs both the driver and the shim")
		return
	}
	offered, errDriver := exported(d.driver)
	caught, errShim := exported(d.library)
	if err := errors.Join(errDriver, errShim); err != nil {
		d.found("catches", unknown, "", "%v", err)
		return
	}
	offered = slices.DeleteFunc(offered, func(name string) bool { return !taking.MatchString(name) })
	if len(offered) == 0 {
		d.found("catches", unknown, "", "%s exports none of the functions that gpuarb knows", d.driver)
		return
	}
	missed := slices.DeleteFunc(offered, func(name string) bool { return slices.Contains(caught, name) })
	d.judgeCatches(missed, slices.Contains(caught, "dlsym"))
}

// judgeCatches reports on the driver's functions that the shim does not have.
func (d *doctor) judgeCatches(missed []string, hasDlsym bool) {
	slices.Sort(missed)
	names := strings.Join(missed, ", ")
	switch {
	case !hasDlsym:
		d.found("catches", wrong, "install the shim of this gpuarb", "%s does not catch dlsym: it is not gpuarb's, or an old one", d.library)
	case slices.ContainsFunc(missed, essential.MatchString):
		d.found("catches", wrong, "update gpuarb: until then programs that use them are not held",
			"this driver has functions that the shim does not catch: %s", names)
	case len(missed) > 0:
		d.found("catches", note, "what a program takes through them shows up as overhead or unmanaged",
			"the shim catches what programs mostly use; not yet %s", names)
	default:
		d.found("catches", fine, "", "the shim catches every function of this driver that takes memory or streams")
	}
}

// exported returns the names of the functions that a library defines for others.
func exported(path string) ([]string, error) {
	file, err := elf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	defer file.Close()
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var names []string
	for _, symbol := range symbols {
		if symbol.Section != elf.SHN_UNDEF && elf.ST_TYPE(symbol.Info) == elf.STT_FUNC {
			names = append(names, symbol.Name)
		}
	}
	return names, nil
}
