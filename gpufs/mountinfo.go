package gpufs

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
)

// mounted is one line of the kernel's table of mounts.
type mounted struct {
	point  string
	fsType string
	source string
}

func (m *mounted) String() string { return m.fsType + " from " + m.source }

func (m *mounted) ours() bool { return m.fsType == fsType }

// mountedAt returns the topmost mount at path, or nil.
func mountedAt(path string) (*mounted, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return parseMountinfo(f, path)
}

// parseMountinfo finds the last mount at path, which is the topmost:
//
//	36 35 98:0 /root /point options tag… - type source superoptions
func parseMountinfo(r io.Reader, path string) (*mounted, error) {
	var top *mounted
	scan := bufio.NewScanner(r)
	scan.Buffer(nil, 1<<20)
	for scan.Scan() {
		before, after, ok := strings.Cut(scan.Text(), " - ")
		head, tail := strings.Fields(before), strings.Fields(after)
		if !ok || len(head) < 5 || len(tail) < 2 {
			return nil, fmt.Errorf("mountinfo: unknown line %q", scan.Text())
		}
		if unescape(head[4]) == path {
			top = &mounted{point: path, fsType: tail[0], source: unescape(tail[1])}
		}
	}
	return top, scan.Err()
}

// unescape undoes the kernel's \ooo for space, tab, newline, backslash and #.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if n, ok := octal(s[i:]); ok {
			b.WriteByte(n)
			i += 3
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// octal reads \ooo at the beginning of s.
func octal(s string) (byte, bool) {
	if len(s) < 4 || s[0] != '\\' {
		return 0, false
	}
	n := 0
	for _, c := range s[1:4] {
		if c < '0' || c > '7' {
			return 0, false
		}
		n = n*8 + int(c-'0')
	}
	return byte(n), n < 256
}
