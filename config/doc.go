// Package config reads the configuration of gpuarb: /etc/gpuarb/gpuarb.toml and
// the conf.d/*.toml beside it.
//
// Reading is strict. An unknown key, a value of the wrong type or out of range, and
// a key whose meaning this version does not carry out are mistakes; every mistake
// of every file is reported, each as file:line: reason, and a configuration with a
// mistake in it is not returned at all. Nothing is ever ignored silently: a key of a
// later version is accepted only with the value that says what this version does.
//
// The files are taken in order: the main file, then conf.d by name. In [defaults] a
// later file overrides the keys it sets; [[rule]] and [[device]] are appended.
//
// The package also owns how a size is spelled (ParseSize), for files, flags and
// control files alike. It decides nothing: what a limit means is the arbiter's.
// Everything here is safe for concurrent use; a Config is not changed after Load.
package config
