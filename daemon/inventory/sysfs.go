package inventory

// This file reads small files below sysfs. drm.go and cpu.go call it.

import (
	"os"
	"strings"
)

// readText reads a small file and removes the white space around its text.
func readText(path string) (string, error) {
	data, err := os.ReadFile(path)
	return strings.TrimSpace(string(data)), err
}

// exists reports whether a path exists.
func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
