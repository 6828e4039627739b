package ipc

import (
	"slices"
	"unsafe"
)

// bytesOf is a layout as it lies in memory.
func bytesOf[T Body | Header | Page](layout *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(layout)), unsafe.Sizeof(*layout))
}

// Marshal appends one message to dst and returns the longer slice. It fills in
// the header's Magic, Version and Length; Type, Status and Request are h's. It
// checks nothing: what the other side will refuse, it encodes all the same.
// It allocates only when dst lacks room.
func Marshal[T Body](dst []byte, h Header, body *T) []byte {
	return marshalPart(slices.Grow(dst, HeaderSize+size[T]()), h, body, 0)
}

// Unmarshal decodes a message's body, the bytes after its header, into *body,
// strictly: the length is exact, reserved fields are zero, values are in range.
// The error is a *ProtocolError, and *body is then not to be used. It never
// panics, whatever the bytes, and allocates nothing when they are right.
func Unmarshal[T Body](src []byte, body *T) error {
	if len(src) != size[T]() {
		return malformed("a %T has %d bytes, not %d", *body, size[T](), len(src))
	}
	copy(bytesOf(body), src)
	if err := validate(body); err != nil {
		return err
	}
	return nil
}

func appendHeader(dst []byte, h Header) []byte {
	h.Magic, h.Version = Magic, Version
	return append(dst, bytesOf(&h)...)
}

// ParseHeader reads and checks what every message of every version has: a
// complete header, the magic, a version that is spoken here, and a length that
// is the message's own. full is how many bytes the message had, which is more
// than len(msg) when the reader's buffer cut it.
//
// The header is returned as far as it could be read, also with an error, so
// that an error reply can name the request that it answers.
func ParseHeader(msg []byte, full int) (Header, error) {
	if len(msg) < HeaderSize {
		return Header{}, malformed("a message of %d bytes is shorter than its header of %d", full, HeaderSize)
	}
	var h Header
	copy(bytesOf(&h), msg)
	switch {
	case h.Magic != Magic:
		return Header{}, malformed("magic is %#x, not %#x: this is not gpuarb's protocol", h.Magic, uint32(Magic))
	case h.Version != Version:
		return h, refuse(StatusVersion, "the message is of version %d, version %d is spoken here", h.Version, Version)
	case int64(h.Length) != int64(full):
		return h, malformed("%v: the header says %d bytes, %d came", h.Type, h.Length, full)
	}
	return h, nil
}

// ParseRequest checks a whole request as it came from a client, all but the
// values inside its body, which Unmarshal checks. The body is a part of msg.
// The error is a *ProtocolError; the header is then what could be read.
func ParseRequest(msg []byte, full int) (Header, []byte, error) {
	h, err := ParseHeader(msg, full)
	if err != nil {
		return h, nil, err
	}
	s := lookup(h.Type)
	switch {
	case s == nil:
		return h, nil, refuse(StatusUnknownType, "no request has type %d", uint16(h.Type))
	case full != HeaderSize+s.request:
		return h, nil, malformed("%v: a request has %d bytes, not %d", h.Type, HeaderSize+s.request, full)
	case len(msg) != full:
		return h, nil, malformed("%v: %d of %d bytes were read", h.Type, len(msg), full)
	case h.Status != 0:
		return h, nil, malformed("%v: a request has status 0, not %d", h.Type, uint32(h.Status))
	}
	return h, msg[HeaderSize:], nil
}

// ParseReply checks a whole reply as it came from the daemon. The body is that
// of the request's type when Status is below 99, a WaitingReply with StatusWaiting
// (of the types that can wait), an ErrorReply from 100 on. A
// type of ReplyBit alone is an error that answers no request in particular.
// The error is a *ProtocolError.
func ParseReply(msg []byte, full int) (Header, []byte, error) {
	h, err := ParseHeader(msg, full)
	if err != nil {
		return h, nil, err
	}
	if h.Type&ReplyBit == 0 {
		return h, nil, refuse(StatusUnknownType, "type %d is no reply", uint16(h.Type))
	}
	if len(msg) != full {
		return h, nil, malformed("%v: %d of %d bytes were read", h.Type, len(msg), full)
	}
	want, more := size[ErrorReply](), false
	if !h.Status.IsError() {
		s := lookup(h.Type &^ ReplyBit)
		if s == nil || s.noReply {
			return h, nil, refuse(StatusUnknownType, "no reply has type %d", uint16(h.Type))
		}
		want, more = s.reply, s.more
		if h.Status == StatusWaiting && !s.waits {
			return h, nil, refuse(StatusOrder, "%v: nothing of this type waits", h.Type)
		}
		if h.Status == StatusWaiting {
			want = size[WaitingReply]()
		}
	}
	if got := full - HeaderSize; got < want || (got > want && !more) {
		return h, nil, malformed("%v: a reply has %d bytes, not %d", h.Type, HeaderSize+want, full)
	}
	return h, msg[HeaderSize:], nil
}

// marshalPart is Marshal for a body that n more bytes follow.
func marshalPart[T Body](dst []byte, h Header, part *T, n int) []byte {
	h.Length = uint32(HeaderSize + size[T]() + n)
	return append(appendHeader(dst, h), bytesOf(part)...)
}
