package ipc

// This file encodes and decodes messages. bodies.go lists them, layout.go has their layouts, and validate.go checks
// the values in a body.

import (
	"slices"
	"unsafe"
)

// bytesOf returns the memory of a layout as bytes.
func bytesOf[T Body | Header | Page](layout *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(layout)), unsafe.Sizeof(*layout))
}

// Marshal appends one message to dst and returns the longer slice. It sets the header's Magic, Version and Length;
// Type, Status and Request come from h. It does not check values, so that it also encodes messages that the other
// side refuses. It allocates only if dst lacks capacity.
func Marshal[T Body](dst []byte, h Header, body *T) []byte {
	return marshalPart(slices.Grow(dst, HeaderSize+size[T]()), h, body, 0)
}

// Unmarshal decodes a message's body, the bytes after its header, into *body. It requires the exact length, zero in
// reserved fields, and values in range. The error is a *ProtocolError; *body is then undefined. Unmarshal never
// panics, and it allocates nothing if the body is valid.
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

// appendHeader appends h with the protocol's magic and version.
func appendHeader(dst []byte, h Header) []byte {
	h.Magic, h.Version = Magic, Version
	return append(dst, bytesOf(&h)...)
}

// ParseHeader reads and checks the part that all messages of all versions share: a complete header, the magic, a
// known version, and a length that equals the message's. full is the message's length in bytes; it exceeds len(msg)
// if the reader's buffer was too small.
//
// With an error, ParseHeader returns the fields that it could read, so that an error reply can name the request.
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

// ParseRequest checks a whole request from a client, except for the values in its body, which Unmarshal checks. The
// returned body is a part of msg. The error is a *ProtocolError; the header then has the fields that could be read.
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

// ParseReply checks a whole reply from the daemon. The body has the type that belongs to the request if Status is
// below 99. It is a WaitingReply with StatusWaiting, if the request's type can wait, and an ErrorReply from 100 on. A
// type of ReplyBit alone is an error that answers no request in particular. The error is a *ProtocolError.
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

// marshalPart does the work of Marshal for a body that n more bytes follow.
func marshalPart[T Body](dst []byte, h Header, part *T, n int) []byte {
	h.Length = uint32(HeaderSize + size[T]() + n)
	return append(appendHeader(dst, h), bytesOf(part)...)
}
