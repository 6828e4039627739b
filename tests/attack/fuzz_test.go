package attack

import (
	"encoding/binary"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file has the fuzz target for sequences of requests on the daemon's socket. socket_test.go makes its seeds, and
// sends random messages in the ordinary tests.

// FuzzRequests sends a sequence of messages with arbitrary content to a real daemon
// over its real socket: each is two bytes of length and then a body of that length. After them
// the daemon still answers, and its sums are consistent.
func FuzzRequests(f *testing.F) {
	m := rig.New(f, rig.Options{Devices: "1G", NoMount: true, Binary: *daemonPath})
	device := uuid(m, 0)
	r := rand.New(rand.NewPCG(*seed, 0))
	hello := ipc.Marshal(nil, ipc.Header{Type: ipc.TypeHello}, &ipc.HelloRequest{Kind: ipc.KindShim, Memory: ipc.NoLimit})
	attach := ipc.Marshal(nil, ipc.Header{Type: ipc.TypeAttach}, &ipc.AttachRequest{Device: device})
	for range 20 {
		messages := [][]byte{hello, attach}
		for range 8 {
			messages = append(messages, request(r, device))
		}
		messages = append(messages, rubbish[r.IntN(len(rubbish))](r, device))
		f.Add(script(messages))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: m.Socket, Net: "unixpacket"})
		check(t, err)
		for range 40 {
			if len(text) <= 2 {
				break
			}
			n := min(int(binary.LittleEndian.Uint16(text)), len(text)-2)
			if _, err := c.Write(text[2 : 2+n]); err != nil {
				break
			}
			text = text[2+n:]
			_ = c.SetReadDeadline(time.Now().Add(100 * time.Microsecond))
			_, _ = c.Read(make([]byte, 1024))
		}
		_ = c.Close()
		m.T = t
		sane(t, m)
	})
}

// script encodes messages in the form that FuzzRequests reads.
func script(messages [][]byte) (text []byte) {
	for _, m := range messages {
		m = m[:min(len(m), 1<<16-1)]
		text = append(binary.LittleEndian.AppendUint16(text, uint16(len(m))), m...)
	}
	return text
}
