package rig

import (
	"slices"
	"strings"
	"testing"
)

// This file checks Machine.Env of machine.go: settings of the user who runs the tests must not change what test
// programs print.

// TestEnvLeavesTasteOut checks that the programs of a machine do not see the variables by which users set colours in their shells.
func TestEnvLeavesTasteOut(t *testing.T) {
	taste := []string{"NO_COLOR=1", "CLICOLOR=0", "CLICOLOR_FORCE=1", "FORCE_COLOR=1"}
	for _, kv := range taste {
		key, value, _ := strings.Cut(kv, "=")
		t.Setenv(key, value)
	}
	env := New(t, Options{NoMount: true}).Env()
	for _, kv := range taste {
		if slices.Contains(env, kv) {
			t.Errorf("a program of the machine sees %s", kv)
		}
	}
}
