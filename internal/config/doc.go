// Package config reads the configuration of gpuarb: /etc/gpuarb/gpuarb.toml and the conf.d/*.toml
// beside it. The main type is Config; Load returns it.
//
// Reading is strict. An unknown key, a value of a wrong type or out of range, and a key in a wrong
// section are mistakes. Every mistake of every file is reported as file:line: reason. A
// configuration with a mistake is not returned at all, and nothing is ignored without a message.
//
// The files are read in order: the main file, then conf.d by name. In [defaults], [http] and
// [privacy] a later file overrides the keys that it sets. [[rule]] and [[device]] sections are
// appended.
//
// The package decides nothing: the arbiter decides what a limit means. All functions are safe for
// concurrent use; a Config never changes after Load.
//
// docs/glossary.md explains the terms.
package config
