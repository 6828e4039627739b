// Package packages builds a release twice, from two clones, and examines it with the tools of the distributions: lintian and
// rpm. The oracles are those tools, the build information that Go keeps in each program, and a comparison of the two releases.
// tests/systemd installs the .deb on a booted machine. `make test-full PKG=./tests/packages` runs it.
package packages
