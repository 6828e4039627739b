// Package config reads the configuration of gpuarb: /etc/gpuarb/gpuarb.toml and
// the conf.d/*.toml beside it.
//
// Reading is strict. An unknown key, a value of the wrong type or out of range, and
// a key in a section where it has no meaning are mistakes; every mistake
// of every file is reported, each as file:line: reason, and a configuration with a
// mistake in it is not returned at all. Nothing is ever ignored silently.
//
// The files are taken in order: the main file, then conf.d by name. In [defaults], [http] and
// [privacy] a later file overrides the keys it sets; [[rule]] and [[device]] are appended.
//
// It decides nothing: what a limit means is the arbiter's.
// Everything here is safe for concurrent use; a Config is not changed after Load.
//
// docs/glossary.md explains the terms.
package config
