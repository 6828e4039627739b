package main

// This file finds the licence of a Go module. main.go calls it for each module.

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// licence is the licence of a part.
type licence struct {
	id   string // SPDX's name; "NOASSERTION": the text is none of the known ones
	text string
}

// cLibrary is the name of the only part that is no Go module.
const cLibrary = "glibc"

const lgplNotice = `The command gpuarb is linked statically to the GNU C library, which is free software under the GNU Lesser General
Public License, version 2.1 or later. On Debian, /usr/share/common-licenses/LGPL-2.1 has the text. To use another
C library, link the command again from its source.
`

// readLicence returns the licence of the module in a folder. A module may have several files, such as a notice.
func readLicence(folder string) (licence, error) {
	var l licence
	for _, pattern := range []string{"LICEN[SC]E*", "COPYING*", "NOTICE*"} {
		names, err := filepath.Glob(filepath.Join(folder, pattern))
		if err != nil {
			return l, err
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				return l, err
			}
			if l.id == "" {
				l.id = known(string(text))
			}
			l.text += strings.TrimSpace(string(text)) + "\n"
		}
	}
	if l.id == "" {
		return l, fmt.Errorf("%s has no licence: no file is named LICENSE*, LICENCE*, COPYING* or NOTICE*", folder)
	}
	return l, nil
}

// known returns SPDX's name of a licence, which it recognises by sentences of the text; NOASSERTION: it recognises none.
func known(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	has := func(words string) bool { return strings.Contains(text, words) }
	switch {
	case has("Apache License") && has("Version 2.0"):
		return "Apache-2.0"
	case has("Mozilla Public License") && has("2.0"):
		return "MPL-2.0"
	case has("Permission is hereby granted, free of charge"):
		return "MIT"
	case has("Redistribution and use in source and binary forms") && has("Neither the name"):
		return "BSD-3-Clause"
	case has("Redistribution and use in source and binary forms"):
		return "BSD-2-Clause"
	}
	return "NOASSERTION"
}

// licenceTexts returns the text that must accompany the programs.
func licenceTexts(parts []part) []byte {
	var out bytes.Buffer
	fmt.Fprintln(&out, "gpuarb's programs contain these parts. Each has its own licence.")
	for _, p := range parts {
		fmt.Fprintf(&out, "\n%s\n%s %s\n\n%s", strings.Repeat("=", 80), p.name, p.version, p.licence.text)
	}
	return out.Bytes()
}

// goOutput returns what the go command prints.
func goOutput(args ...string) (string, error) {
	var complaint bytes.Buffer
	cmd := exec.Command(cmp.Or(os.Getenv("GO"), "go"), args...)
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%v: %w\n%s", cmd.Args, err, &complaint)
	}
	return strings.TrimSpace(string(out)), nil
}
