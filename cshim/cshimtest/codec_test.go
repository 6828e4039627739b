package cshimtest

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/gpuarb/gpuarb/ipc"
)

// This file compares the library's decoder of replies with the decoder of package ipc, on the same bytes.
// ipc/codec_test.go checks the Go side alone.

// codec runs the library's decoder (cshim/test/codec.c) as a process.
type codec struct {
	sync.Mutex
	in  io.WriteCloser
	out *bufio.Reader
}

func startCodec(t testing.TB) *codec {
	t.Helper()
	cmd := exec.Command(filepath.Join("..", "..", "build", "cshim-test", "codec"))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v: run `make cshim-test-programs` first", err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	return &codec{in: in, out: bufio.NewReader(out)}
}

// read returns what the library decodes from a message.
func (c *codec) read(t testing.TB, msg []byte) string {
	t.Helper()
	c.Lock()
	defer c.Unlock()
	if _, err := c.in.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(msg))), msg...)); err != nil {
		t.Fatal(err)
	}
	line, err := c.out.ReadString('\n')
	if err != nil {
		t.Fatalf("the library's codec has ended on %x: %v", msg, err)
	}
	return strings.TrimSpace(line)
}

// goResult returns what the Go side decodes from a message, in the format of codec.c. Values that only
// the Go side refuses, such as a reserved field that is not 0, are not compared: a library must
// accept fields that a later daemon adds.
func goResult(msg []byte) string {
	h, body, err := ipc.ParseReply(msg, len(msg))
	if err != nil {
		return "no"
	}
	typ := h.Type &^ ipc.ReplyBit
	var v [4]uint64
	fill := func(values ...uint64) { copy(v[:], values) }
	switch {
	case h.Status.IsError():
	case h.Status == ipc.StatusWaiting:
		r := raw[ipc.WaitingReply](body)
		fill(r.Ticket, uint64(r.Position), r.Waited)
	case typ == ipc.TypeHello, typ == ipc.TypeResume:
		r := raw[ipc.HelloReply](body)
		fill(uint64(r.Devices), uint64(r.OnLoss), uint64(r.InJob), r.HostMax)
	case typ == ipc.TypeAttach:
		r := raw[ipc.AttachReply](body)
		fill(uint64(r.Slot), uint64(r.Index), r.Total, r.Budget)
	case typ == ipc.TypeAlloc:
		r := raw[ipc.AllocReply](body)
		fill(r.Granted, r.Requested, r.Remaining, r.Limit)
	case typ == ipc.TypeStream:
		r := raw[ipc.StreamReply](body)
		fill(uint64(r.Current), uint64(r.Max))
	case typ == ipc.TypeContext:
		r := raw[ipc.ContextReply](body)
		fill(uint64(r.Current), r.Requested, r.Remaining)
	case typ == ipc.TypeQuery:
		r := raw[ipc.QueryReply](body)
		fill(r.Total, r.Used, r.Room)
	}
	return fmt.Sprintf("%d %d %d %d %d %d %d", uint16(typ), uint32(h.Status), h.Request, v[0], v[1], v[2], v[3])
}

// raw decodes a body without checking its values.
func raw[T any](body []byte) (v T) {
	_, _ = binary.Decode(body, binary.LittleEndian, &v)
	return v
}

// FuzzCodecs checks that the library and the Go side agree which messages are replies, and decode
// the same values.
func FuzzCodecs(f *testing.F) {
	for typ := ipc.Type(0); typ < 32; typ++ {
		for _, status := range []ipc.Status{ipc.StatusOK, ipc.StatusOverBudget, ipc.StatusWaiting, ipc.StatusTooMany} {
			for _, size := range []int{0, 8, 16, 24, 32, 40, 48, 512, 536, 544, 552, 1064, 1512} {
				msg := ipc.Marshal(nil, ipc.Header{Type: typ | ipc.ReplyBit, Status: status, Request: 7}, &ipc.Empty{})
				for i := range size {
					msg = append(msg, byte(i))
				}
				binary.LittleEndian.PutUint32(msg[8:], uint32(len(msg)))
				f.Add(msg)
			}
		}
	}
	c := startCodec(f)
	f.Fuzz(func(t *testing.T, msg []byte) {
		if len(msg) > 1<<16 || len(msg) >= 6 && binary.LittleEndian.Uint16(msg[4:]) != ipc.Version {
			return // of a message of another version, only the header has a meaning
		}
		if refusesSession(msg) {
			return // the library accepts it with any status
		}
		if library, here := c.read(t, msg), goResult(msg); library != here {
			t.Errorf("%x:\nthe library reads %q\nthe Go side    %q", msg, library, here)
		}
	})
}

// refusesSession reports whether a reply to Hello or Resume is a refusal by policy with a text.
// Such a reply is an error, because the body of its type has no field for a text.
func refusesSession(msg []byte) bool {
	if len(msg) != ipc.HeaderSize+ipc.TextSize {
		return false
	}
	typ := ipc.Type(binary.LittleEndian.Uint16(msg[6:])) &^ ipc.ReplyBit
	status := ipc.Status(binary.LittleEndian.Uint32(msg[12:]))
	return (typ == ipc.TypeHello || typ == ipc.TypeResume) && status > 0 && status < ipc.StatusWaiting
}

// TestEveryReplyIsKnown checks that the library accepts every reply that the Go side can send.
func TestEveryReplyIsKnown(t *testing.T) {
	t.Parallel()
	c := startCodec(t)
	known := 0
	for typ := ipc.Type(1); typ < 64; typ++ {
		for size := range 4096 {
			msg := ipc.Marshal(nil, ipc.Header{Type: typ | ipc.ReplyBit}, &ipc.Empty{})
			msg = append(msg, make([]byte, size)...)
			binary.LittleEndian.PutUint32(msg[8:], uint32(len(msg)))
			if here := goResult(msg); here != "no" {
				known++
				if library := c.read(t, msg); library != here {
					t.Errorf("type %d with %d bytes: the library reads %q, the Go side %q", typ, size, library, here)
				}
				break
			}
		}
	}
	if known < 12 {
		t.Errorf("%d types of replies", known)
	}
}
