package simcuda

import (
	"path/filepath"
	"testing"
)

// This file runs the programs in test/ that check the driver from inside of one process: error codes, copies,
// the resolver of functions, and pools. The other files of this package have tests with several processes.

// Pools of chunks work with each granule, with and without remapping.
func TestPoolsOfChunks(t *testing.T) {
	for _, granule := range []string{"2097152", "33554432"} {
		for _, remap := range []string{"0", "1"} {
			t.Run(granule+"/"+remap, func(t *testing.T) {
				m := newMachine(t, "SIMCUDA_POOL_GRANULE="+granule, "SIMCUDA_POOL_REMAP="+remap)
				m.run("chunks", granule, remap)
				m.wantTotal(0)
			})
		}
	}
}

// Checks that need only one process are programs in C.
func TestPrograms(t *testing.T) {
	rows, err := filepath.Abs("data/resolve-555.tsv")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, program, arg string }{
		{"every mistake gets its code", "strict", ""},
		{"copies move the right bytes", "copies", ""},
		{"the resolver answers as measured", "resolver", rows},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(t)
			if c.arg == "" {
				m.run(c.program)
			} else if got := m.run(c.program, c.arg); got == "0" {
				t.Error("nothing was checked")
			}
			m.wantTotal(0)
			if held := m.sim("held"); held != "" {
				t.Errorf("left behind: %s", held)
			}
		})
	}
}
