package daemon

import (
	"os"
	"strconv"
	"testing"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/gpufs"
	"github.com/gpuarb/gpuarb/ipc"
)

// shapeTimes is how often TestShape does its one thing. tools/shape runs it with as often as there
// are clients and with none, and takes from the difference what the thing crosses.
const (
	shapeTimes   = "GPUARB_SHAPE_TIMES"
	shapeClients = "GPUARB_SHAPE_CLIENTS"
)

// TestShape does one thing in a running daemon, again and again: each must leave the books as it should.
func TestShape(t *testing.T) {
	number := func(variable string) int {
		if n, err := strconv.Atoi(os.Getenv(variable)); err == nil {
			return n
		}
		return 2
	}
	times, clients := number(shapeTimes), number(shapeClients)
	const block = 4096
	for name, do := range map[string]func(*testing.T, *bench){
		"grant": func(t *testing.T, b *bench) {
			s := b.session()
			for range times {
				if _, err := s.Main.Alloc(t.Context(), ipc.AllocRequest{Slot: 0, Kind: ipc.MemoryPlain, Bytes: block}); err != nil {
					t.Fatal(err)
				}
			}
			if got := b.lease(os.Getpid(), 0).Used; got != accounting.Bytes(times*block) {
				t.Errorf("%d bytes are used", got)
			}
		},
		"limit": func(t *testing.T, b *bench) {
			b.session()
			for i := range times {
				if err := b.Set(t.Context(), gpufs.Setting{Of: gpufs.OfProcess, PID: os.Getpid(), Device: 0, Name: "memory.max",
					Value: strconv.Itoa(1<<20 + i)}); err != nil {
					t.Fatal(err)
				}
			}
			if got := b.lease(os.Getpid(), 0).Budget; times > 0 && got != accounting.Bytes(1<<20+times-1) {
				t.Errorf("memory.max is %d", got)
			}
		},
		"death": func(t *testing.T, b *bench) {
			var children []*child
			for range clients {
				children = append(children, b.child(block))
			}
			for _, c := range children[:times] {
				c.freed()
				c.die()
			}
			b.until("the dead are forgotten", func() bool {
				b.lock()
				defer b.unlock()
				return len(b.sessions) == clients-times
			})
			if err := b.Stop(); err != nil {
				t.Fatal(err)
			}
		},
		"restart": func(t *testing.T, b *bench) {
			s := b.session()
			for range times {
				b.restart()
				c, err := ipc.Dial(t.Context(), b.socket())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = c.Close() })
				if err := s.Resume(t.Context(), c, []ipc.ResumeLease{{Device: b.machine.list[0].UUIDBytes}}); err != nil {
					t.Fatal(err)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) { do(t, newBench(t, 1<<30)) })
	}
}
