package entrypoints

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file shows what CUDA arrays and mipmapped arrays are charged with. The expected bytes are computed here
// from the sizes, the format and the levels of each descriptor. foreign_array_test.go has arrays over imported
// memory, and module_test.go has memory that only an array still keeps.

// Values of CUarray_format, and flags of a descriptor.
const (
	u8      = 0x01
	u16     = 0x02
	half    = 0x10
	float   = 0x20
	layered = 1
	cubemap = 4

	sparse, deferred = 0x40, 0x80
)

// arrays are commands that make arrays of every shape, with the bytes that must be charged for each, and the
// driver's function that it calls.
var arrays = []struct {
	command string // with %s for the name
	bytes   uint64
	symbol  string
}{
	{fmt.Sprintf("array %%s 1000 0 %d 1", u8), 1000, "cuArrayCreate_v2"},
	{fmt.Sprintf("array %%s 1001 33 %d 4", float), 1001 * 33 * 16, "cuArrayCreate_v2"},
	{fmt.Sprintf("arrayv1 %%s 1001 33 %d 2", half), 1001 * 33 * 4, "cuArrayCreate"},
	{fmt.Sprintf("arrayv1 %%s 77 0 %d 1", u8), 77, "cuArrayCreate"},
	{fmt.Sprintf("array3d %%s 101 0 0 %d 1 0", u16), 101 * 2, "cuArray3DCreate_v2"},
	{fmt.Sprintf("array3d %%s 101 7 5 %d 2 0", u16), 101 * 7 * 5 * 4, "cuArray3DCreate_v2"},
	{fmt.Sprintf("array3d %%s 101 0 9 %d 1 %d", u8, layered), 101 * 9, "cuArray3DCreate_v2"},
	{fmt.Sprintf("array3d %%s 65 65 6 %d 1 %d", u8, cubemap), 65 * 65 * 6, "cuArray3DCreate_v2"},
	{fmt.Sprintf("array3dv1 %%s 101 7 5 %d 4 0", u8), 101 * 7 * 5 * 4, "cuArray3DCreate"},
	{fmt.Sprintf("array3dv1 %%s 65 65 12 %d 1 %d", u8, cubemap|layered), 65 * 65 * 12, "cuArray3DCreate"},
	{fmt.Sprintf("mipmap %%s 100 0 0 %d 1 0 1", u8), 100, "cuMipmappedArrayCreate"},
	// 100 × 30 × 5, 50 × 15 × 2, 25 × 7 × 1, 12 × 3 × 1
	{fmt.Sprintf("mipmap %%s 100 30 5 %d 1 0 4", u8), 15000 + 1500 + 175 + 36, "cuMipmappedArrayCreate"},
	// Each level has all 5 layers: 5 of 100 × 30, 50 × 15, 25 × 7.
	{fmt.Sprintf("mipmap %%s 100 30 5 %d 2 %d 3", u16, layered), 5 * 4 * (3000 + 750 + 175), "cuMipmappedArrayCreate"},
	{fmt.Sprintf("mipmap %%s 16 16 6 %d 1 %d 5", u8, cubemap), 6 * (256 + 64 + 16 + 4 + 1), "cuMipmappedArrayCreate"},
	// More levels are requested than exist: 8, 4, 2, 1.
	{fmt.Sprintf("mipmap %%s 8 8 0 %d 1 0 99", u8), 64 + 16 + 4 + 1, "cuMipmappedArrayCreate"},
}

func destroy(command, name string) string {
	if strings.HasPrefix(command, "mipmap") {
		return "mipmapdestroy " + name
	}
	return "arraydestroy " + name
}

// TestArraysAreCharged: arrays of every shape are charged by their bytes.
func TestArraysAreCharged(t *testing.T) {
	const limit = 8<<20 + 3
	everyWay(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		pid, sum := p.PID(), uint64(0)
		for i, a := range arrays {
			p.Want(fmt.Sprintf(a.command, fmt.Sprint("a", i)), "ok")
			sum += a.bytes
			holds(t, m, pid, 0, sum)
		}
		exactly(p, limit-sum)
		for i, a := range arrays {
			name := fmt.Sprint("a", i)
			p.Want(destroy(a.command, name), "ok")
			sum -= a.bytes
			holds(t, m, pid, 0, sum)
			p.Want(destroy(a.command, name), errInvalidHandle)
			holds(t, m, pid, 0, sum)
		}
		exactly(p, limit)
	})
}

// TestArraysToTheLastByte: an array that needs the last byte is granted, and one that needs one byte more is refused.
func TestArraysToTheLastByte(t *testing.T) {
	const limit = 8 << 20
	everyWay(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		for _, a := range arrays {
			// With one byte too few left, the library refuses without a call of the driver.
			p.Want(fmt.Sprintf("alloc most %d", limit-a.bytes+1), "ok")
			m.CountCalls("cu*Array*Create*")
			p.Want(fmt.Sprintf(a.command, "a"), errOutOfMemory)
			if n := m.Calls("cu*Array*Create*"); n != 0 {
				t.Errorf("%s: the driver was asked %d times", a.command, n)
			}
			m.Sim("clear")
			holds(t, m, pid, 0, limit-a.bytes+1)
			p.Want("free most", "ok")
			// With exactly enough bytes left, it succeeds.
			p.Want(fmt.Sprintf("alloc most %d", limit-a.bytes), "ok")
			p.Want(fmt.Sprintf(a.command, "a"), "ok")
			holds(t, m, pid, 0, limit)
			p.Want("alloc more 1", errOutOfMemory)
			p.Want(destroy(a.command, "a"), "ok")
			p.Want("free most", "ok")
		}
	})
}

// TestArraysRollBack: an array that the driver refuses is not charged, and a refused destroy returns no bytes.
func TestArraysRollBack(t *testing.T) {
	const limit, kept = 1<<20 + 1, 5001
	everyWay(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		p.Want(fmt.Sprintf("alloc kept %d", kept), "ok")
		for _, a := range arrays {
			m.Sim("fail", a.symbol+":1:999")
			p.Want(fmt.Sprintf(a.command, "a"), "err 999")
			m.Sim("clear")
			holds(t, m, pid, 0, kept)
			exactly(p, limit-kept)
			// A destroy that the driver refuses returns no bytes.
			p.Want(fmt.Sprintf(a.command, "a"), "ok")
			m.Sim("fail", "cu*ArrayDestroy:1:999")
			p.Want(destroy(a.command, "a"), "err 999")
			m.Sim("clear")
			holds(t, m, pid, 0, kept+a.bytes)
			p.Want(destroy(a.command, "a"), "ok")
			holds(t, m, pid, 0, kept)
		}
		// The driver refuses arrays of these shapes with its own error, and they are not charged.
		for _, command := range []string{
			"array a 0 0 1 1", "array a 10 10 1 3", "array a 10 10 1 0", "mipmap a 10 10 0 1 1 0 0", "array3d a 7 8 6 1 1 4",
		} {
			p.Want(command, errInvalidValue)
		}
		for _, command := range []string{
			"array a 0x4000000000000000 0x4000000000000000 1 1", "array a 0x8000000000000000 1 0x20 4",
			"mipmap a 0xffffffffffffffff 0xffffffffffffffff 0 1 1 0 64",
		} {
			p.Want(command, errOutOfMemory)
		}
		holds(t, m, pid, 0, kept)
		exactly(p, limit-kept)
	})
}

// TestArraysEndWithTheirContext: the arrays of a context are uncharged when the context ends.
func TestArraysEndWithTheirContext(t *testing.T) {
	const limit = 1 << 20
	everyWay(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		p.Want("array kept 1000 0 1 1", "ok")
		for _, kind := range []struct{ begin, end string }{{"context", "destroy c"}, {"primary", "reset 0"}} {
			p.Want(kind.begin+" c", "ok")
			p.Want("array a 100 3 32 4", "ok")
			p.Want("mipmap b 100 30 5 1 1 0 4", "ok")
			holds(t, m, pid, 0, 1000+4800+16711)
			p.Want(kind.end, "ok")
			holds(t, m, pid, 0, 1000)
		}
		p.Want("use first", "ok")
		exactly(p, limit-1000)
	})
}

// TestEqualHandles checks a driver that gives an array, a library and memory the same number: each keeps its own bytes.
func TestEqualHandles(t *testing.T) {
	t.Parallel()
	const limit, memory, array = 8 << 20, 4 << 20, 1000
	m := rig.New(t, rig.Options{NoMount: true, Sim: []string{"SIMCUDA_HANDLES_APART=1"}})
	p := start(m, "dlsym", limit)
	pid := p.PID()
	p.Want(fmt.Sprintf("create m %d", memory), "ok")
	p.Want("loadlibrary l 1K", "ok")
	p.Want(fmt.Sprintf("array a %d 0 1 1", array), "ok")
	holds(t, m, pid, 0, memory+array)
	p.Want("unloadlibrary l", "ok")
	holds(t, m, pid, 0, memory+array)
	p.Want("arraydestroy m", "ok") // m and the array have the same number
	holds(t, m, pid, 0, memory)
	p.Want("releasemem m", "ok")
	holds(t, m, pid, 0, 0)
	exactly(p, limit)
}

// TestArraysWithoutMemory: arrays whose memory is mapped later are not charged by themselves.
func TestArraysWithoutMemory(t *testing.T) {
	const limit = 1000
	everyWay(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		p.Want(fmt.Sprintf("array3d a 100 100 0 1 1 %d", deferred), "ok")
		p.Want(fmt.Sprintf("mipmap b 100 100 0 1 1 %d 3", deferred), "ok")
		p.Want(fmt.Sprintf("array3d c 100 100 0 1 1 %d", sparse), "ok")
		p.Want(fmt.Sprintf("mipmap d 100 100 0 1 1 %d 3", sparse), "ok")
		exactly(p, limit)
		p.Want("arraydestroy a", "ok")
		p.Want("mipmapdestroy b", "ok")
		p.Want("arraydestroy c", "ok")
		p.Want("mipmapdestroy d", "ok")
		exactly(p, limit)
		holds(t, m, p.PID(), 0, 0)
	})
}

// TestArrayFormats: the simulated driver knows few formats. For other formats the test sees the charge, because
// the library refuses requests over the limit before it calls the driver. A limit of 12,288 bytes is a whole number of rows of 64
// elements of any size.
func TestArrayFormats(t *testing.T) {
	t.Parallel()
	const limit, width = 12288, 64
	m := rig.New(t, rig.Options{NoMount: true})
	p := start(m, "gpa", limit)
	for bits, formats := range map[int][]int{
		4:  {0x91, 0x92, 0x97, 0x98},
		8:  {0x93, 0x94, 0x95, 0x96, 0x99, 0x9a, 0x9b, 0x9c, 0x9d, 0x9e, 0xc0, 0xc6},
		12: {0xb0, 0x53, 0x59},
		16: {0xa2, 0xa5, 0x51, 0x55, 0x5b, 0xc1, 0xc3, 0xc7, 0xc9},
		24: {0x9f, 0xa1, 0x54, 0x5a, 0xb2, 0xb4, 0x57, 0x5d},
		32: {0x50, 0x52, 0xa8, 0xa9, 0xa3, 0xa4, 0xa6, 0xa7, 0x56, 0x5c, 0xc2, 0xc4, 0xc8, 0xca},
		48: {0xb3, 0xb5, 0x58, 0x5e}, 64: {0xb1, 0xc5, 0xcb},
		128: {0x7f, 0xffff}, // formats of future drivers
	} {
		rows := limit * 8 / (width * bits)
		for _, format := range formats {
			p.Want(fmt.Sprintf("array a %d %d %d 4", width, rows, format), errInvalidValue)
			p.Want(fmt.Sprintf("array a %d %d %d 4", width, rows+1, format), errOutOfMemory)
		}
	}
	// Compressed formats have whole blocks of 4 × 4: 5 × 1 elements take two blocks.
	p.Want(fmt.Sprintf("alloc most %d", limit-16), "ok")
	p.Want("array a 5 1 0x91 4", errInvalidValue)
	p.Want("alloc more 1", "ok")
	p.Want("array a 5 1 0x91 4", errOutOfMemory)
	p.Want("mipmap a 16 1 0 1 1 0 0", errOutOfMemory) // 0 levels means one level
}
