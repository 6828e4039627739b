package ipc

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode/utf8"
)

// String is the name of the request, with " reply" for a reply's type.
func (t Type) String() string {
	suffix := ""
	if t&ReplyBit != 0 {
		suffix = " reply"
	}
	if s := lookup(t &^ ReplyBit); s != nil {
		return s.name + suffix
	}
	return fmt.Sprintf("type %d%s", uint16(t&^ReplyBit), suffix)
}

// MakeText is s as a Text: cut to TextSize−1 bytes between two characters, with
// what is no UTF-8, and NUL bytes, replaced by U+FFFD.
func MakeText(s string) (t Text) {
	if len(s) > 2*TextSize {
		s = s[:2*TextSize] // enough of it: do not walk a megabyte for 511 bytes
	}
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
	if len(s) > TextSize-1 {
		cut := TextSize - 1
		for !utf8.RuneStart(s[cut]) {
			cut--
		}
		s = s[:cut]
	}
	copy(t[:], s)
	return t
}

// String is the text up to its NUL, as valid UTF-8 whatever the bytes are. It
// may hold control characters: escape it before it meets a terminal.
func (t *Text) String() string {
	s, _, _ := bytes.Cut(t[:], []byte{0})
	return strings.ToValidUTF8(string(s), "\uFFFD")
}

// NewToken makes a fresh secret from the kernel's random numbers.
func NewToken() (t Token) {
	rand.Read(t[:]) // never fails: it ends the program rather than return
	return t
}

// ParseToken reads the 32 hex digits of GPUARB_JOB.
func ParseToken(s string) (t Token, err error) {
	if len(s) != 2*TokenSize {
		return Token{}, fmt.Errorf("a token has %d hex digits, not %d", 2*TokenSize, len(s))
	}
	if _, err := hex.Decode(t[:], []byte(s)); err != nil {
		return Token{}, fmt.Errorf("a token has hex digits only: %w", err)
	}
	return t, nil
}

// Hex is the whole secret as 32 hex digits, as GPUARB_JOB takes it.
func (t Token) Hex() string { return hex.EncodeToString(t[:]) }

// String is enough of the token to tell two apart in a log, and not enough to use it.
func (t Token) String() string {
	if t.IsZero() {
		return "none"
	}
	return hex.EncodeToString(t[:3]) + "…"
}

// IsZero tells that no token was given.
func (t Token) IsZero() bool { return t == Token{} }

// String is the UUID in its usual five groups, without a vendor's prefix.
func (u UUID) String() string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}
