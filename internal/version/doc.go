// Package version holds the version of this build. It imports nothing, so that the daemon, the
// command line and tests can all use it.
package version
