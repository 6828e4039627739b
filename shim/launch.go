package shim

// This file computes the environment with which a program starts, and finds the library. visible.go
// and vulkan.go add their variables.

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpuarb/gpuarb/ipc"
)

// Launch says how a program is started with the library.
type Launch struct {
	Library string          // path of the library, as FindLibrary returns it
	Socket  string          // absolute path of the daemon's socket
	Job     ipc.Token       // token of the job that the program belongs to
	Devices []ipc.JobDevice // devices that the program shall see; empty: those that it sees anyway
	Wishes  []string        // NAME=value pairs with which each program asks for less than the job has
}

// Environ returns base with the variables that the library and the program need. These are the
// library as the first in LD_PRELOAD, a Vulkan layer, the daemon's socket, and the job. CUDA's
// devices get the order of their PCI addresses, unless base sets another order, so that an index
// has the same meaning for the program and for gpuarb. A program with GCC's AddressSanitizer is
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

// Without returns an environment without the variables that Environ adds.
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

// linkOrder is an option of AddressSanitizer. By default, AddressSanitizer ends a program in which
// it is not the first library. A library that allocates nothing before the program does, such as
// this one, may come first.
const linkOrder = "verify_asan_link_order"

// preload puts library before the libraries that are preloaded already. It removes library and its
// other build from these.
func preload(library, already string) string {
	list := []string{library}
	for _, path := range strings.FieldsFunc(already, separatesPreloads) {
		if path != library && path != OtherBuild(library) {
			list = append(list, path)
		}
	}
	return strings.Join(list, ":")
}
