// Package version holds the version of this build. It imports nothing, so that the daemon, the
// command line and tests can all use it. It has no type and no lock: the build sets the version,
// and nothing changes it later. The package does not compare versions.
package version
