package ipc

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"unicode"
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

// String is the path up to its NUL, as valid UTF-8 whatever the bytes are. It may hold control
// characters: escape it before it meets a terminal.
func (p *Path) String() string {
	s, _, _ := bytes.Cut(p[:], []byte{0})
	return strings.ToValidUTF8(string(s), "\uFFFD")
}

// MaxName bounds the name of a job, in bytes.
const MaxName = 64

// MakeShortText makes a ShortText of a word or a name: what is longer is cut.
func MakeShortText(s string) (t ShortText) {
	whole := MakeText(s)
	if copy(t[:], whole[:]); t[len(t)-1] != 0 {
		cut := len(t) - 1
		for cut > 0 && !utf8.RuneStart(t[cut]) {
			cut--
		}
		clear(t[cut:])
	}
	return t
}

// String is the text, without its padding. Bytes that are not UTF-8 become U+FFFD.
func (t ShortText) String() string {
	text, _, _ := bytes.Cut(t[:], []byte{0})
	return strings.ToValidUTF8(string(text), "\uFFFD")
}

// MakeCommand makes the text of JobOpenRequest.Command. The job's name stands behind the NUL of
// the command, where a daemon that knows of no names does not look.
func MakeCommand(command, name string) (t Text) {
	if CheckName(name) != nil {
		return MakeText(command)
	}
	t = MakeText(command)
	end := min(bytes.IndexByte(t[:], 0), TextSize-len(name)-2)
	for end > 0 && t[end] != 0 && !utf8.RuneStart(t[end]) {
		end--
	}
	clear(t[end:])
	copy(t[end+1:], name)
	return t
}

// Name is the job's name in such a text; "" where there is none, or none that can be one.
func (t *Text) Name() string {
	_, rest, _ := bytes.Cut(t[:], []byte{0})
	name, _, _ := bytes.Cut(rest, []byte{0})
	if CheckName(string(name)) != nil {
		return ""
	}
	return string(name)
}

// CheckName says why a text cannot be the name of a job; nil when it can. A number would be taken
// for a PID or the number of a job.
func CheckName(name string) error {
	switch {
	case name == "":
		return errors.New("it is empty")
	case len(name) > MaxName:
		return fmt.Errorf("it has %d bytes, the most is %d", len(name), MaxName)
	case !utf8.ValidString(name), strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }):
		return errors.New("it has a character that cannot be printed")
	case strings.Contains(name, "/"):
		return errors.New("it has a slash")
	case name != strings.TrimSpace(name), name[0] == '-':
		return errors.New("it begins with a space or \"-\", or ends with a space")
	case strings.Trim(name, "0123456789") == "":
		return errors.New("it is a number, as a PID is")
	}
	return nil
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

// Vendors are the numbers of the vendors, by their names.
var Vendors = map[string]uint32{"nvidia": VendorNVIDIA, "amd": VendorAMD, "intel": VendorIntel, "cpu": VendorCPU}

// String is the UUID in its usual five groups, without a vendor's prefix.
func (u UUID) String() string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}
