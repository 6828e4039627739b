package shim

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

	"github.com/gpuarb/gpuarb/ipc"
)

// LibraryName is the file name of the preload shim.
const LibraryName = "libgpuarb.so"

const probeName = "gpuarb-probe"

// withoutExports is the folder, beside the library, of its second build, which exports no driver functions.
const withoutExports = "no-exports"

// Launch is what a program is given to run under the shim.
type Launch struct {
	Library string          // path of the shim, as FindLibrary returns it
	Socket  string          // absolute path of the daemon's socket
	Job     ipc.Token       // of the job that the program belongs to
	Devices []ipc.JobDevice // those that it shall see; none: those that it sees anyway
	Wishes  []string        // NAME=value, by which each program asks for less than the job has
}

// Environ returns the environment base, with what the shim and the program need:
// the library first in LD_PRELOAD, and a layer of Vulkan's, the daemon and the job, and CUDA's devices in the
// order of their PCI addresses (unless base says another order), so that an index
// means the same to the program as to gpuarb. A program of GCC's AddressSanitizer is
// told that the library may come first. base is not changed.
func (l Launch) Environ(base []string) []string {
	env := slices.Clone(base)
	libraries := preload(l.Library, getenv(env, "LD_PRELOAD"))
	env = setenv(env, "LD_PRELOAD", libraries)
	if options := getenv(env, "ASAN_OPTIONS"); libraries == l.Library && !strings.Contains(options, linkOrder) {
		env = setenv(env, "ASAN_OPTIONS", strings.TrimPrefix(options+":"+linkOrder+"=0", ":"))
	}
	env = withLayer(env, l.Library)
	env = setenv(env, "GPUARB_SOCKET", l.Socket)
	env = setenv(env, "GPUARB_JOB", l.Job.Hex())
	if getenv(env, "CUDA_DEVICE_ORDER") == "" {
		env = setenv(env, "CUDA_DEVICE_ORDER", "PCI_BUS_ID")
	}
	for _, wish := range l.Wishes {
		name, value, _ := strings.Cut(wish, "=")
		env = setenv(env, name, value)
	}
	if len(l.Devices) > 0 {
		env = visible(env, l.Devices)
	}
	return env
}

// Without returns an environment without what Environ has put into it.
func Without(environ []string) []string {
	env := slices.Clone(environ)
	libraries := strings.FieldsFunc(getenv(env, "LD_PRELOAD"), separatesPreloads)
	libraries = slices.DeleteFunc(libraries, func(path string) bool { return filepath.Base(path) == LibraryName })
	options := strings.TrimPrefix(strings.TrimSuffix(getenv(env, "ASAN_OPTIONS"), linkOrder+"=0"), ":")
	for name, value := range map[string]string{"LD_PRELOAD": strings.Join(libraries, ":"), "ASAN_OPTIONS": strings.TrimSuffix(options, ":")} {
		if env = unsetenv(env, name); value != "" {
			env = append(env, name+"="+value)
		}
	}
	for _, name := range []string{"GPUARB_SOCKET", "GPUARB_JOB", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"} {
		env = unsetenv(env, name)
	}
	if getenv(env, "CUDA_DEVICE_ORDER") == "PCI_BUS_ID" {
		env = unsetenv(env, "CUDA_DEVICE_ORDER")
	}
	return withoutLayer(env)
}

// linkOrder is the option of AddressSanitizer that has it look for itself first among the
// program's libraries, and end the program where it is not. A library that allocates
// nothing before the program does, as the shim, may come first.
const linkOrder = "verify_asan_link_order"

// preload puts library before what was preloaded already. It leaves out library itself, and its other build, from the rest.
func preload(library, already string) string {
	list := []string{library}
	for _, path := range strings.FieldsFunc(already, separatesPreloads) {
		if path != library && path != OtherBuild(library) {
			list = append(list, path)
		}
	}
	return strings.Join(list, ":")
}

// OtherBuild returns the path of the other build of a library: without exports for the one with them, and the other way round.
func OtherBuild(library string) string {
	folder, name := filepath.Split(library)
	folder = filepath.Clean(folder)
	if isWithoutExports(library) {
		return filepath.Join(filepath.Dir(folder), name)
	}
	return filepath.Join(folder, withoutExports, name)
}

func isWithoutExports(library string) bool {
	return filepath.Base(filepath.Dir(library)) == withoutExports
}

// PreloadsNoExports reports whether a value of LD_PRELOAD names the build without exports.
func PreloadsNoExports(list string) bool {
	return slices.ContainsFunc(strings.FieldsFunc(list, separatesPreloads), func(path string) bool {
		return isWithoutExports(path) && filepath.Base(path) == LibraryName
	})
}

func separatesPreloads(r rune) bool { return r == ':' || r == ' ' }

// LookupEnv returns the last value of name in an environment, as os.LookupEnv would.
func LookupEnv(environ []string, name string) (value string, set bool) {
	for _, entry := range slices.Backward(environ) {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value, true
		}
	}
	return "", false
}

func getenv(env []string, name string) string {
	value, _ := LookupEnv(env, name)
	return value
}

// setenv removes every name from env, and adds one with value.
func setenv(env []string, name, value string) []string {
	return append(unsetenv(env, name), name+"="+value)
}

func unsetenv(env []string, name string) []string {
	return slices.DeleteFunc(env, func(entry string) bool { return strings.HasPrefix(entry, name+"=") })
}

// LibraryPaths is where the shim is looked for, in order: GPUARB_LIB alone when that
// is set, else beside the executable (an absolute path), then where it is installed.
// env is os.Getenv.
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

// multiarch is the name that Debian gives this machine's kind.
func multiarch() string {
	if runtime.GOARCH == "arm64" {
		return "aarch64-linux-gnu"
	}
	return "x86_64-linux-gnu"
}

// FindLibrary returns the first of LibraryPaths that the dynamic linker can preload.
// The error lists the paths with the reason for each. A file that the linker would pass over with no more
// than a warning (of another machine, say) counts as not there: the program would run
// without any limit.
func FindLibrary(executable string, env func(string) string) (string, error) {
	return first(LibraryPaths(executable, env), LibraryName+" that can be preloaded", CheckLibrary)
}

// WithoutExports returns the path of the second build of a library that FindLibrary returned. The second build exports no driver
// functions, for programs with another library that has variables of these names. The error says what is wrong with the file.
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

// FindProbe returns the program that shows what the library catches, from the first of the folders of LibraryPaths
// that has it. The error lists the paths with the reason for each.
func FindProbe(executable string, env func(string) string) (string, error) {
	paths := LibraryPaths(executable, env)
	for i := range paths {
		paths[i] = filepath.Join(filepath.Dir(paths[i]), probeName)
	}
	return first(paths, probeName, func(path string) error {
		_, err := exec.LookPath(path)
		return err
	})
}

// first is the first of the paths with which nothing is wrong.
func first(paths []string, what string, wrong func(path string) error) (string, error) {
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

// reason is what the system said of a file, without the file's name.
func reason(err error) error {
	var number syscall.Errno
	if errors.As(err, &number) {
		return number
	}
	return err
}

// CheckLibrary says why the dynamic linker could not load the library at path into a
// program of this machine, by its path and its header; nil when it could.
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

// checkELF looks at the start of an ELF header: magic, class, byte order, then
// type and machine as 16-bit numbers at 16 and 18.
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
