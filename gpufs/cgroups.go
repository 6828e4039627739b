package gpufs

// This file makes the folders cgroups/PATH: one for each cgroup that has clients or a limit, and for its parents,
// nested as in the kernel's tree. root.go calls it; tree.go has the parts of a folder.

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// cgroup makes the folder of a cgroup.
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

// cgroupFiles makes the files of a cgroup. They belong to the daemon's user, because only root may write a cgroup's
// limit. The root cgroup has no limit, as in cgroup v2.
func (b *builder) cgroupFiles(of string, s *snapshot) ([]entry, bool) {
	find := func(s *snapshot) (figures.CgroupState, bool) { return s.Cgroup(of) }
	if _, ok := find(s); !ok {
		return nil, false
	}
	fields := b.group
	if of == "/" {
		fields = slices.DeleteFunc(slices.Clone(fields), func(f cgroupField) bool { return f.Name == "memory.max" })
	}
	entries := b.makeWritable(fieldFiles(fields, find), Setting{Of: rules.Owner{Kind: rules.OfCgroup, Path: of}, Device: rules.AllDevices})
	return finishFolder(entry{id: cgroupIdentity(of), uid: b.uid}, entries), true
}

// cgroupEntry makes the entry of a cgroup in its parent's folder.
func (b *builder) cgroupEntry(in, name string) entry {
	of := below(in, name)
	return entry{name: name, id: cgroupIdentity(of), uid: b.uid, dir: b.cgroup(of)}
}

// below returns the path of a cgroup's child.
func below(of, name string) string { return strings.TrimSuffix(of, "/") + "/" + name }

// cgroupIdentity returns the identity of a cgroup's folder: 104 bits of a hash of its path. A cryptographic hash is
// needed, because users choose paths and could otherwise make two folders with one identity.
func cgroupIdentity(path string) identity {
	sum := sha256.Sum256([]byte(path))
	return identity{kind: kindCgroup, id: binary.LittleEndian.Uint64(sum[:]) & (1<<40 - 1), generation: binary.LittleEndian.Uint64(sum[8:])}
}

// cgroupsIn returns the names of a cgroup's children, sorted and without repetition.
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
