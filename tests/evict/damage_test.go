package evict

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	"testing"
)

// This file damages the records of suspended jobs between two daemons.

// TestDamagedRecords: the next daemon drops damaged records, and its log says so. The job is then resident, as if it had never been
// suspended, and nothing is reserved for it.
func TestDamagedRecords(t *testing.T) {
	t.Parallel()
	const header = 4096 // size of the header, by internal/statefile/tablefile.go
	noise := rand.New(rand.NewPCG(1, 2))
	for name, c := range map[string]struct {
		damage func(file []byte) []byte
		log    string
	}{
		"cut": {func(file []byte) []byte { return file[:5000] }, "the records of suspended jobs are lost"},
		"of another version": {func(file []byte) []byte {
			file[8] = 99
			return file
		}, "the records of suspended jobs are lost"},
		"ones": {func(file []byte) []byte {
			eachRecord(file, header, func(row []byte) {
				for i := range row[4:] {
					row[4+i] = 0xff
				}
			})
			return file
		}, "the record of a suspended job makes no sense"},
		"noise": {func(file []byte) []byte {
			eachRecord(file, header, func(row []byte) {
				for i := range row[4:] {
					row[4+i] = byte(noise.Uint32())
				}
			})
			return file
		}, "the record of a suspended job makes no sense"},
		"a broken process": {func(file []byte) []byte {
			eachRecord(file, header, func(row []byte) { copy(row[len(row)-2560:], `{"PID": "`) })
			return file
		}, "the record of a suspended job makes no sense"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := playUntil(t, atResuming, false)
			p.m.Kill()
			path := p.m.Socket + ".state.suspensions"
			file, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, c.damage(file), 0o600); err != nil {
				t.Fatal(err)
			}
			p.m.Start()
			p.m.AwaitLog(c.log)
			if j, _ := p.job(); j.Residence != "" {
				t.Errorf("the job is %q", j.Residence)
			}
			p.fits(8 * gib)
			p.s.Want("alloc a 6G", "ok")
			p.s.quiet(p.m, 6*gib)
		})
	}
}

// eachRecord calls f with each record that is in use. The first byte of such a record is 1.
func eachRecord(file []byte, header int, f func(row []byte)) {
	size := int(binary.LittleEndian.Uint32(file[12:]))
	for at := header; at+size <= len(file); at += size {
		if file[at] == 1 {
			f(file[at : at+size])
		}
	}
}
