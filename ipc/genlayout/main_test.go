package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// This file checks that cshim/core/wire.h and the tables of docs/reference/protocol.md are what ipc/layout.go gives, and that genlayout refuses layouts
// which C and Go could read differently.

// TestHeaderIsCurrent: the committed C header is the one that genlayout makes.
func TestHeaderIsCurrent(t *testing.T) {
	want, err := generate("../layout.go")
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../cshim/core/wire.h")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("cshim/core/wire.h is not what ipc/layout.go makes: run go generate ./ipc")
	}
}

// TestPageIsCurrent: the tables of docs/reference/protocol.md are those that genlayout makes.
func TestPageIsCurrent(t *testing.T) {
	tables, err := bodies("../layout.go")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/reference/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(page, append(append([]byte(pageBegin), tables...), pageEnd...)) {
		t.Error("the tables of docs/reference/protocol.md are not what ipc/layout.go makes: run make generate")
	}
}

// TestPaddingIsRefused: genlayout refuses a structure with implicit padding, which C and Go could lay out
// differently, and whose bytes no program writes.
func TestPaddingIsRefused(t *testing.T) {
	for text, word := range map[string]string{
		"type A struct { X uint32; Y uint64 }":    "padding before",
		"type A struct { X uint64; Y uint32 }":    "padding at its end",
		"type A struct { X string }":              "no C type",
		"type A struct { X uint64; Y [4]uint16 }": "",
	} {
		path := filepath.Join(t.TempDir(), "layout.go")
		if err := os.WriteFile(path, []byte("package ipc\n"+text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := generate(path)
		if word == "" && err != nil || word != "" && (err == nil || !strings.Contains(err.Error(), word)) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
