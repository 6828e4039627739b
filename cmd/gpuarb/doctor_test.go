package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/cmd/gpuarb/doctor"
)

// This file checks what `gpuarb doctor` prints if no daemon answers. Package doctor has the tests of the single
// checks.

func TestDoctorWithoutDaemon(t *testing.T) {
	got := finish(t, gpuarb(t, []string{"GPUARB_SOCKET=/no/socket"}, "doctor"))
	wantCode(t, got, 1)
	if !strings.HasPrefix(got.stdout, "wrong   daemon   no gpuarb daemon answers (tried /no/socket: no such file or directory)") ||
		!strings.Contains(got.stdout, ", or start one of your own with gpuarbd --user\n") || got.stderr != "" {
		t.Errorf("%v", got)
	}
	got = finish(t, gpuarb(t, []string{"GPUARB_SOCKET=/no/socket"}, "doctor", "--json"))
	wantCode(t, got, 1)
	var findings []doctor.Finding
	if err := json.Unmarshal([]byte(got.stdout), &findings); err != nil || len(findings) < 9 || findings[0].Verdict != doctor.Wrong {
		t.Errorf("%v: %+v", err, findings)
	}
}
