package version

// This file has the only variable of the package. The commands and the daemon read it.

// Version is the version of this build. A release sets it with
// -ldflags "-X github.com/gpuarb/gpuarb/internal/version.Version=1.2.3".
var Version = "0.1.0"
