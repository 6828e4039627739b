package shim

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The library as a layer of Vulkan's: its name, the file by which Vulkan's loader finds it, and the variable
// without which the installed one is not opened.
const (
	layerName     = "VK_LAYER_GPUARB_arbiter"
	layerManifest = "gpuarb_layer.json"
	layerVariable = "GPUARB_VULKAN"
)

// withLayer has Vulkan's loader open the library. Where it does not find the installed manifest by itself,
// it is told of a folder with one, as for a layer that a developer wants; base's own folders and layers stay. A
// loader before 1.3.207 does not know the variable, and passes over a layer that it does not find.
func withLayer(env []string, library string) []string {
	env = setenv(env, layerVariable, "1")
	if isWithoutExports(library) {
		env = unsetenv(env, layerVariable) // else the loader takes the installed layer as well, which is in the other build
	}
	folder := layerFolder(library, getenv(env, "XDG_DATA_DIRS"))
	if folder == "" {
		return env
	}
	paths := "VK_ADD_LAYER_PATH"
	if _, set := LookupEnv(env, "VK_LAYER_PATH"); set {
		paths = "VK_LAYER_PATH" // which has the other one ignored, empty or not
	}
	env = setenv(env, paths, listed(getenv(env, paths), folder))
	return setenv(env, "VK_INSTANCE_LAYERS", listed(getenv(env, "VK_INSTANCE_LAYERS"), layerName))
}

// withoutLayer is the inverse.
func withoutLayer(env []string) []string {
	env = unsetenv(env, layerVariable)
	if !slices.Contains(strings.Split(getenv(env, "VK_INSTANCE_LAYERS"), ":"), layerName) {
		return env
	}
	remove := func(name string, ours func(string) bool) {
		list := slices.DeleteFunc(strings.Split(getenv(env, name), ":"), func(entry string) bool { return entry == "" || ours(entry) })
		if env = unsetenv(env, name); len(list) > 0 {
			env = append(env, name+"="+strings.Join(list, ":"))
		}
	}
	remove("VK_ADD_LAYER_PATH", hasManifest)
	remove("VK_LAYER_PATH", hasManifest)
	remove("VK_INSTANCE_LAYERS", func(entry string) bool { return entry == layerName })
	return env
}

// layerFolder is where the manifest of a library lies, if Vulkan's loader does not look there by itself; empty:
// it does, or there is none.
func layerFolder(library, dataDirs string) string {
	dirs := strings.Split(cmp.Or(dataDirs, "/usr/local/share:/usr/share"), ":")
	share := filepath.Join(filepath.Dir(library), "../../share") // of PREFIX/lib/gpuarb
	if installed := filepath.Join(share, "vulkan/implicit_layer.d"); hasManifest(installed) {
		if slices.ContainsFunc(dirs, func(dir string) bool { return filepath.Clean(dir) == share }) {
			return ""
		}
		return installed
	}
	if built := filepath.Join(filepath.Dir(library), "vulkan"); hasManifest(built) {
		return built
	}
	return ""
}

func hasManifest(folder string) bool {
	_, err := os.Stat(filepath.Join(folder, layerManifest))
	return err == nil
}

// listed is a list with entry at its end, once.
func listed(list, entry string) string {
	if slices.Contains(strings.Split(list, ":"), entry) {
		return list
	}
	return strings.TrimPrefix(list+":"+entry, ":")
}
