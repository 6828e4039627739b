package ipc

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

// This file has the fuzz targets of the decoders: any bytes are refused with a reason, or encode to the same bytes
// again. codec_test.go has the messages from which the fuzzer starts.

// decoderOf finds the sample with the decoder of a body type.
func decoderOf(all []sample, typ Type, reply bool) *sample {
	for i := range all {
		if all[i].typ == typ && all[i].reply == reply {
			return &all[i]
		}
	}
	return nil
}

// checkRefusal checks that an error has a text and a status for the peer.
func checkRefusal(t *testing.T, err error) {
	t.Helper()
	var p *ProtocolError
	if !errors.As(err, &p) || !p.Status.IsError() || p.Text == "" {
		t.Fatalf("not a proper refusal: %#v", err)
	}
	if r := MakeText(p.Text); r.String() != p.Text {
		t.Fatalf("a refusal that does not fit a reply: %q", p.Text)
	}
}

// FuzzDecodeRequest: any bytes are either a message that encodes to the same bytes again, or are refused with a
// reason.
func FuzzDecodeRequest(f *testing.F) {
	fuzzDecode(f, false, ParseRequest)
}

// FuzzDecodeReply makes the checks of FuzzDecodeRequest for a client's decoder.
func FuzzDecodeReply(f *testing.F) {
	fuzzDecode(f, true, ParseReply)
}

func fuzzDecode(f *testing.F, reply bool, parse func([]byte, int) (Header, []byte, error)) {
	all := samples()
	for _, s := range all {
		f.Add(s.msg)
		f.Add(s.msg[:len(s.msg)-1])
	}
	f.Add(Marshal(nil, Header{Type: ReplyBit, Status: StatusTooMany}, &ErrorReply{Text: MakeText("no")}))
	f.Add(Marshal(nil, Header{Type: TypeAlloc | ReplyBit, Status: StatusWaiting}, &goodWaiting))
	f.Fuzz(func(t *testing.T, msg []byte) {
		h, body, err := parse(msg, len(msg))
		if err != nil {
			checkRefusal(t, err)
			return
		}
		if again := appendHeader(nil, h); !bytes.Equal(again, msg[:HeaderSize]) {
			t.Fatalf("header %x became %x", msg[:HeaderSize], again)
		}
		s := decoderOf(all, h.Type&^ReplyBit, reply)
		if h.Status.IsError() {
			e := sampleOf("error", h.Type, true, ErrorReply{})
			s = &e
		} else if h.Status == StatusWaiting && reply {
			w := sampleOf("waiting", h.Type, true, WaitingReply{})
			s = &w
		} else if reply && (h.Type == TypeSnapshot|ReplyBit || h.Type == TypeMetrics|ReplyBit) {
			body = body[:size[SnapshotPart]()]
		} else if reply && h.Type == TypeEvents|ReplyBit {
			body = body[:size[EventsPart]()]
		}
		again, err := s.again(body)
		if err != nil {
			checkRefusal(t, err)
			return
		}
		if !bytes.Equal(again, body) {
			t.Fatalf("%s: %x became %x", s.name, body, again)
		}
	})
}

// FuzzUnmarshal drives every body's decoder with any bytes of any length.
func FuzzUnmarshal(f *testing.F) {
	all := append(samples(), sampleOf("Waiting", TypeAlloc, true, goodWaiting))
	for i, s := range all {
		f.Add(uint8(i), s.msg[HeaderSize:])
	}
	f.Fuzz(func(t *testing.T, which uint8, body []byte) {
		s := all[int(which)%len(all)]
		again, err := s.again(body)
		if err != nil {
			checkRefusal(t, err)
		} else if !bytes.Equal(again, body) {
			t.Fatalf("%s: %x became %x", s.name, body, again)
		}
	})
}

// FuzzText: any text can be read back as UTF-8. A prefix of the text arrives unchanged if it is UTF-8 without NUL.
func FuzzText(f *testing.F) {
	f.Add("plain")
	f.Add("a\x00b\xff")
	f.Add(strings.Repeat("é", 600))
	f.Fuzz(func(t *testing.T, s string) {
		text := MakeText(s)
		got := text.String()
		if !utf8.ValidString(got) || len(got) >= TextSize {
			t.Fatalf("%q became %q", s, got)
		}
		if utf8.ValidString(s) && !strings.Contains(s, "\x00") &&
			(!strings.HasPrefix(s, got) || len(got) < min(len(s), TextSize-utf8.UTFMax)) {
			t.Fatalf("%q became %q", s, got)
		}
	})
}

// FuzzCreditWord: the parts of a word do not affect each other.
func FuzzCreditWord(f *testing.F) {
	f.Add(uint64(5), uint16(3), uint64(FlagClosed))
	f.Fuzz(func(t *testing.T, credit uint64, epoch uint16, flags uint64) {
		w := MakeCreditWord(credit, epoch, flags)
		if w.Credit() != min(credit, CreditLimit) || w.Epoch() != epoch&(1<<EpochBits-1) ||
			w.Closed() != (flags&FlagClosed != 0) || w.Notify() != (flags&FlagNotify != 0) {
			t.Fatalf("MakeCreditWord(%d, %d, %#x) = %v", credit, epoch, flags, w)
		}
		if MakeCreditWord(w.Credit(), w.Epoch(), w.Flags()) != w {
			t.Fatalf("%v does not come back", w)
		}
	})
}
