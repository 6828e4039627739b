package shim

// This file adds the library to the Vulkan layers of a program. launch.go calls it.

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The library as a Vulkan layer: its name, the manifest by which the Vulkan loader finds it, and
// the variable without which the loader does not open the installed layer.
const (
	layerName     = "VK_LAYER_GPUARB_arbiter"
	layerManifest = "gpuarb_layer.json"
	layerVariable = "GPUARB_VULKAN"
)

// withLayer makes the Vulkan loader open the library. If the loader does not find the installed
// manifest, it is given the folder of a manifest; folders and layers of base stay. A loader before
// 1.3.207 does not know that variable, and ignores a layer that it does not find.
func withLayer(env []string, library string) []string {
	env = setenv(env, layerVariable, "1")
	if isWithoutExports(library) {
		env = unsetenv(env, layerVariable) // otherwise the loader would also open the installed layer, which is the other build
	}
	folder := layerFolder(library, getenv(env, "XDG_DATA_DIRS"))
	if folder == "" {
		return env
	}
	paths := "VK_ADD_LAYER_PATH"
	if _, set := LookupEnv(env, "VK_LAYER_PATH"); set {
		paths = "VK_LAYER_PATH" // if it is set, even to "", the loader ignores VK_ADD_LAYER_PATH
	}
	env = setenv(env, paths, appendOnce(getenv(env, paths), folder))
	return setenv(env, "VK_INSTANCE_LAYERS", appendOnce(getenv(env, "VK_INSTANCE_LAYERS"), layerName))
}

// withoutLayer removes what withLayer adds.
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

// layerFolder returns the folder of the library's manifest. It returns "" if the Vulkan loader
// finds the manifest itself, or if there is no manifest.
func layerFolder(library, dataDirs string) string {
	dirs := strings.Split(cmp.Or(dataDirs, "/usr/local/share:/usr/share"), ":")
	share := filepath.Join(filepath.Dir(library), "../../share") // share folder of PREFIX/lib/gpuarb
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

// appendOnce returns the list with entry, which is appended if the list does not have it.
func appendOnce(list, entry string) string {
	if slices.Contains(strings.Split(list, ":"), entry) {
		return list
	}
	return strings.TrimPrefix(list+":"+entry, ":")
}
