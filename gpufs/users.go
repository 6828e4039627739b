package gpufs

// This file has the folders users/NAME. root.go calls it; tree.go has the parts of a folder.

import (
	"strconv"
	"strings"

	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// users makes the folder users.
func (b *builder) users() *directory {
	return &directory{changing: true, list: func(s *snapshot) ([]entry, bool) {
		list, named := make([]entry, 0, len(s.Users)), make(map[string]int, len(s.Users))
		for _, u := range s.Users {
			named[u.Name]++
		}
		for _, u := range s.Users {
			list = append(list, b.userEntry(folderName(u, named[u.Name]), u))
		}
		return list, true
	}}
}

// userEntry makes a user's folder. Its files belong to the daemon's user, because a user may not raise the limit of
// all of the user's programs.
func (b *builder) userEntry(name string, u figures.UserState) entry {
	return folder(b, entry{name: name, id: identity{kind: kindUser, id: uint64(u.UID)}, uid: b.uid}, nil,
		func(s *snapshot) (figures.UserState, bool) { return s.user(u.UID) },
		b.user, Setting{Of: rules.Owner{Kind: rules.OfUser, ID: uint64(u.UID)}, Device: rules.AllDevices, UserName: u.Name}, nil)
}

func (s *snapshot) user(uid uint32) (figures.UserState, bool) {
	return numbered(s.Users, uid, func(u *figures.UserState) uint32 { return u.UID })
}

// folderName returns the name of a user's folder: the user's name if it is a valid file name, is not a number, and
// belongs to one user only. Otherwise it is the UID. named is the number of users with that name.
func folderName(u figures.UserState, named int) string {
	_, isNumber := number(u.Name)
	if named > 1 || isNumber || u.Name == "" || u.Name == "." || u.Name == ".." || len(u.Name) > 255 || strings.ContainsAny(u.Name, "/\x00\n") {
		return strconv.FormatUint(uint64(u.UID), 10)
	}
	return u.Name
}
