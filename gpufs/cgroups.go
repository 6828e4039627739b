package gpufs

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// cgroups/PATH: a folder for each cgroup in which clients run or which has a limit, and for those around it, in one another
// as in the kernel's own tree.

// cgroup is the folder of a cgroup.
func (b *builder) cgroup(of string) *directory {
	return &directory{changing: true, list: func(s *snapshot) ([]entry, bool) {
		entries, ok := b.cgroupFiles(of, s)
		for _, name := range s.cgroupsIn(of) {
			if _, taken := named(entries, name); !taken {
				entries = append(entries, b.cgroupEntry(of, name))
			}
		}
		slices.SortFunc(entries, byName)
		return entries, ok
	}}
}

// cgroupFiles are the files of a cgroup. Its limit is root's to write, so they belong to the daemon's user; the root has none,
// as in cgroup v2.
func (b *builder) cgroupFiles(of string, s *snapshot) ([]entry, bool) {
	find := func(s *snapshot) (figures.CgroupState, bool) { return s.Cgroup(of) }
	if _, ok := find(s); !ok {
		return nil, false
	}
	fields := b.group
	if of == "/" {
		fields = slices.DeleteFunc(slices.Clone(fields), func(f fieldOfCgroup) bool { return f.Name == "memory.max" })
	}
	entries := b.knobs(values(fields, find), Setting{Of: rules.Owner{Kind: rules.OfCgroup, Path: of}, Device: rules.AllDevices})
	return within(entry{id: ofCgroup(of), uid: b.uid}, entries), true
}

// cgroupEntry is a cgroup in the folder of another.
func (b *builder) cgroupEntry(in, name string) entry {
	of := below(in, name)
	return entry{name: name, id: ofCgroup(of), uid: b.uid, dir: b.cgroup(of)}
}

func below(of, name string) string { return strings.TrimSuffix(of, "/") + "/" + name }

// ofCgroup is the identity of a cgroup's folder. Users choose the paths of their cgroups, so that it is made of 104 bits of a hash
// to which nobody can find two paths.
func ofCgroup(path string) identity {
	sum := sha256.Sum256([]byte(path))
	return identity{kind: kindCgroup, id: binary.LittleEndian.Uint64(sum[:]) & (1<<40 - 1), generation: binary.LittleEndian.Uint64(sum[8:])}
}

// cgroupsIn are the names of the cgroups right below one, each once.
func (s *snapshot) cgroupsIn(of string) (names []string) {
	prefix := below(of, "")
	for at := range s.Cgroups() {
		if rest, ok := strings.CutPrefix(at, prefix); ok && rest != "" {
			name, _, _ := strings.Cut(rest, "/")
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
