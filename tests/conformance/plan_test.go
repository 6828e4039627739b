package conformance

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file has the tests of the row B6 of rows.txt: the memory of stream pools is planned beforehand and charged with
// each stream. The other rows of B are in streams_test.go.

// TestB6Plan: `gpuarb plan` computes the memory of stream pools before any program runs: arms (programs that run at
// once) × streams × bytes of a stream's pool. GPUARB_STREAM_RESERVE sets the bytes; an invalid value means the default
// of 256 MiB.
func TestB6Plan(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G", NoMount: true, Stopped: true})
	for _, c := range []struct {
		arms, streams string
		env           string
		bytes         uint64
	}{
		{"4", "4", "", 4 << 30},
		{"1", "1", "", 256 << 20},
		{"4", "4", "64M", 1 << 30},
		{"4", "4", "0", 4 << 30},
		{"4", "4", "-5", 4 << 30},
		{"4", "4", "plenty", 4 << 30},
		{"4294967295", "4294967295", "4294967295M", math.MaxUint64},
	} {
		cmd := m.Gpuarb("plan", "--arms", c.arms, "--streams", c.streams)
		if c.env != "" {
			cmd.Env = append(cmd.Env, "GPUARB_STREAM_RESERVE="+c.env)
		}
		if r := rig.Run(t, cmd); r.Code != 0 || !strings.Contains(r.Stdout, fmt.Sprint(c.bytes)) {
			t.Errorf("%s arms, %s streams, %q: %d %q %q, want %d", c.arms, c.streams, c.env, r.Code, r.Stdout, r.Stderr, c.bytes)
		}
	}
}

// TestB6Charged: with a reserve each stream is charged its pool when it is created,
// and the charge ends with the stream.
func TestB6Charged(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G", NoMount: true})
	p := bare(m, "GPUARB_STREAM_RESERVE=100M", "GPUARB_MEMORY=250M")
	p.Want("context c", "ok")
	p.Want("stream s", "ok")
	p.Want("stream t", "ok")
	p.Want("stream u", errOutOfMemory)
	p.Want("info", fmt.Sprintf("ok %d %d", 50<<20, 250<<20))
	p.Want("streamdestroy s", "ok")
	p.Want("info", fmt.Sprintf("ok %d %d", 150<<20, 250<<20))
	p.Want("alloc a 150M", "ok")
	p.Want("alloc b 1", errOutOfMemory)
	p.Want("streamdestroy t", "ok")
	p.Want("alloc b 100M", "ok")
	p.End()
}
