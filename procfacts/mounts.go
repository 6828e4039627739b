package procfacts

import (
	"strings"

	"github.com/prometheus/procfs"
)

// Mount is a mounted filesystem, a line of /proc/self/mountinfo.
type Mount struct {
	Point  string
	Type   string
	Source string
}

// Mounts lists what is mounted. Of two at one point the later one lies upon the other.
func (r Root) Mounts() ([]Mount, error) {
	all, err := procfs.NewFS(string(r))
	if err != nil {
		return nil, err
	}
	lines, err := all.GetMounts()
	if err != nil {
		return nil, err
	}
	mounts := make([]Mount, len(lines))
	for i, line := range lines {
		mounts[i] = Mount{Point: unescape(line.MountPoint), Type: line.FSType, Source: unescape(line.Source)}
	}
	return mounts, nil
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
