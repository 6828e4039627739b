package container

// This file has the list of files and variables that a container is given. cdi.go writes the list
// as JSON, and engine.go as flags.

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/shim"
)

// Paths in containers. They do not depend on the installation, so that the files that name them
// have the same contents on all machines.
const (
	folderInside  = "/usr/lib/gpuarb"               // the folder of the library
	boundInside   = folderInside + "/bound"         // the folder of the marker; on the machine it is empty
	clientsInside = "/run/gpuarb/client"            // the folder of the daemon's socket
	preloadInside = "/etc/ld.so.preload"            // the loader's list of libraries
	layersInside  = "/etc/vulkan/implicit_layer.d/" // manifests of Vulkan layers
	socketName    = "gpuarb.sock"                   // the name under which the library looks for the socket
)

// Files of the installation that only containers see, in the folder "container" beside the library.
const (
	preloadFile  = "ld.so.preload"
	markerFile   = "on-loss-closed"
	manifestFile = "gpuarb_layer.json"
)

// mount makes a file or a folder of the machine visible in a container, read-only.
type mount struct {
	from, to string
	folder   bool
	programs bool // code is mapped from there
}

// Share lists the mounts and variables of a container.
type Share struct {
	mounts []mount
	env    []string // NAME=value
}

// NewShare returns the mounts and variables for an installed library and a daemon's socket. The
// error says which file of the installation is missing: a container must not get the loader's list
// without the library.
func NewShare(library, socket string) (Share, error) {
	folder := filepath.Dir(library)
	own := filepath.Join(folder, "container")
	for _, name := range []string{preloadFile, markerFile, manifestFile} {
		if _, err := os.Stat(filepath.Join(own, name)); err != nil {
			return Share{}, fmt.Errorf("the files for containers are not beside the library: %w; install gpuarb with `make install` or its package", err)
		}
	}
	if !filepath.IsAbs(socket) {
		return Share{}, fmt.Errorf("the daemon's socket %q is not an absolute path, which a container's mount needs", socket)
	}
	clients := filepath.Dir(socket)
	// Mount the folder that has only the socket, not the folder of the daemon's other files.
	if second := ipc.SecondPath(socket); filepath.Base(clients) != filepath.Base(clientsInside) {
		clients = filepath.Dir(second)
	}
	share := Share{
		mounts: []mount{
			{from: folder, to: folderInside, folder: true, programs: true},
			{from: own, to: boundInside, folder: true},
			{from: clients, to: clientsInside, folder: true},
			{from: filepath.Join(own, preloadFile), to: preloadInside},
			{from: filepath.Join(own, manifestFile), to: layersInside + manifestFile},
		},
		env: []string{"LD_PRELOAD=" + filepath.Join(folderInside, shim.LibraryName), "GPUARB_VULKAN=1"},
	}
	if name := filepath.Base(socket); name != socketName {
		share.env = append(share.env, "GPUARB_SOCKET="+filepath.Join(clientsInside, name))
	}
	return share, nil
}
