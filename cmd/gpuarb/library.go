package main

// This file finds the library that programs and containers are given. Most commands that start
// something call it.

import (
	"fmt"
	"os"

	"github.com/gpuarb/gpuarb/shim"
)

// executable returns the absolute path of this program.
func executable() string {
	path, err := os.Executable()
	if err != nil {
		return "/usr/bin/gpuarb" // without /proc, use the place of the installation
	}
	return path
}

// library returns the path of the library.
func (a *app) library() (string, error) {
	library, err := shim.FindLibrary(executable(), os.Getenv)
	if err != nil {
		return "", fmt.Errorf("%w; install gpuarb, or name the library with GPUARB_LIB", err)
	}
	return library, nil
}

// libraryFor returns the build of the library that a program needs. A program that has variables
// named like driver functions needs the build without exports.
func (a *app) libraryFor(noExports bool) (string, error) {
	library, err := a.library()
	if err != nil || !noExports {
		return library, err
	}
	return shim.WithoutExports(library)
}
