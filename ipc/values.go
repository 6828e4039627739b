package ipc

// This file converts the values in messages from and to Go's types: texts, names, tokens, UUIDs. layout.go declares
// their types.

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// String returns the request's name, with " reply" for a reply's type.
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

// MakeText converts s to a Text. It cuts s to TextSize−1 bytes between two characters. It replaces NUL and bytes that
// are not UTF-8 by U+FFFD.
func MakeText(s string) (t Text) {
	if len(s) > 2*TextSize {
		s = s[:2*TextSize] // avoid the cost of a long text, of which 511 bytes remain
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

// String returns the text up to its NUL, always as valid UTF-8. It may contain control characters: escape them before
// printing the text on a terminal.
func (t *Text) String() string {
	s, _, _ := bytes.Cut(t[:], []byte{0})
	return strings.ToValidUTF8(string(s), "\uFFFD")
}

// String returns the path up to its NUL, always as valid UTF-8. It may contain control characters: escape them before
// printing the path on a terminal.
func (p *Path) String() string {
	s, _, _ := bytes.Cut(p[:], []byte{0})
	return strings.ToValidUTF8(string(s), "\uFFFD")
}

// MaxName bounds the name of a job, in bytes.
const MaxName = 64

// MakeShortText converts s to a ShortText and cuts it between two characters if it is too long.
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

// String returns the text without its padding. Bytes that are not UTF-8 become U+FFFD.
func (t ShortText) String() string {
	text, _, _ := bytes.Cut(t[:], []byte{0})
	return strings.ToValidUTF8(string(text), "\uFFFD")
}

// MakeCommand makes JobOpenRequest.Command. It puts the job's name after the command's NUL, where a daemon that does
// not know names ignores it.
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

// Name returns the job's name in a text of MakeCommand, or "" if there is no valid name.
func (t *Text) Name() string {
	_, rest, _ := bytes.Cut(t[:], []byte{0})
	name, _, _ := bytes.Cut(rest, []byte{0})
	if CheckName(string(name)) != nil {
		return ""
	}
	return string(name)
}

// CheckName returns the reason why name cannot be a job's name; nil: it can. A number is refused because it could be
// taken for a PID or a job's number.
func CheckName(name string) error {
	if strings.Contains(name, "/") {
		return errors.New("it has a slash")
	}
	return CheckBindingName(name)
}

// CheckBindingName returns the reason why name cannot be the name of a cgroup's job; nil: it can. It may have
// slashes.
func CheckBindingName(name string) error {
	switch {
	case name == "":
		return errors.New("it is empty")
	case len(name) > MaxName:
		return fmt.Errorf("it has %d bytes, the most is %d", len(name), MaxName)
	case !utf8.ValidString(name), strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }):
		return errors.New("it has a character that cannot be printed")
	case name != strings.TrimSpace(name), name[0] == '-':
		return errors.New("it begins with a space or \"-\", or ends with a space")
	case strings.Trim(name, "0123456789") == "":
		return errors.New("it is a number, as a PID is")
	}
	return nil
}

// BindingName shortens a name to MaxName bytes: if it is longer, a hash replaces its middle. So a long name keeps its
// beginning and its end, and two long names differ.
func BindingName(name string) string {
	if len(name) <= MaxName {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	hash := "~" + hex.EncodeToString(sum[:4]) + "~"
	head := (MaxName - len(hash)) / 2
	for head > 0 && !utf8.RuneStart(name[head]) {
		head--
	}
	tail := len(name) - (MaxName - len(hash) - head)
	for tail < len(name) && !utf8.RuneStart(name[tail]) {
		tail++
	}
	return name[:head] + hash + name[tail:]
}

// MakeName converts a name of at most MaxName bytes to a ShortText.
func MakeName(name string) (t ShortText) {
	copy(t[:], name)
	return t
}

// NewToken returns a new secret from the kernel's random numbers.
func NewToken() (t Token) {
	rand.Read(t[:]) // ends the program if it fails
	return t
}

// ParseToken parses the 32 hexadecimal digits of GPUARB_JOB.
func ParseToken(s string) (t Token, err error) {
	if len(s) != 2*TokenSize {
		return Token{}, fmt.Errorf("a token has %d hex digits, not %d", 2*TokenSize, len(s))
	}
	if _, err := hex.Decode(t[:], []byte(s)); err != nil {
		return Token{}, fmt.Errorf("a token has hex digits only: %w", err)
	}
	return t, nil
}

// Hex returns the whole secret as 32 hexadecimal digits, the form of GPUARB_JOB.
func (t Token) Hex() string { return hex.EncodeToString(t[:]) }

// String returns the token's first digits: enough to tell tokens apart in a log, too few to use one.
func (t Token) String() string {
	if t.IsZero() {
		return "none"
	}
	return hex.EncodeToString(t[:3]) + "…"
}

// IsZero reports whether the token is unset.
func (t Token) IsZero() bool { return t == Token{} }

// Vendors maps vendor names to their numbers.
var Vendors = map[string]uint32{"nvidia": VendorNVIDIA, "amd": VendorAMD, "intel": VendorIntel, "cpu": VendorCPU}

// String returns the UUID in its usual five groups, without a vendor's prefix.
func (u UUID) String() string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}
