package gpufs

import (
	"strconv"
	"strings"

	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// users/NAME

func (b *builder) users() *directory {
	return &directory{changing: true, list: func(s *snapshot) ([]entry, bool) {
		list, named := make([]entry, 0, len(s.Users)), make(map[string]int, len(s.Users))
		for _, u := range s.Users {
			named[u.Name]++
		}
		for _, u := range s.Users {
			list = append(list, b.userEntry(folderOf(u, named[u.Name]), u))
		}
		return list, true
	}}
}

// userEntry is a user's folder. It belongs to the daemon's user: what limits all programs of a user is not his to raise.
func (b *builder) userEntry(name string, u figures.UserState) entry {
	return folder(b, entry{name: name, id: identity{kind: kindUser, id: uint64(u.UID)}, uid: b.uid}, nil,
		func(s *snapshot) (figures.UserState, bool) { return s.user(u.UID) },
		b.user, Setting{Of: rules.Owner{Kind: rules.OfUser, ID: uint64(u.UID)}, Device: rules.AllDevices, UserName: u.Name}, nil)
}

func (s *snapshot) user(uid uint32) (figures.UserState, bool) {
	return numbered(s.Users, uid, func(u *figures.UserState) uint32 { return u.UID })
}

// folderOf is what the folder of a user is called whose name so many have: as he is, where that is a name for a file, no number
// and his alone; else by his number.
func folderOf(u figures.UserState, named int) string {
	_, isNumber := number(u.Name)
	if named > 1 || isNumber || u.Name == "" || u.Name == "." || u.Name == ".." || len(u.Name) > 255 || strings.ContainsAny(u.Name, "/\x00\n") {
		return strconv.FormatUint(uint64(u.UID), 10)
	}
	return u.Name
}
