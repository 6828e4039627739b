package gpufs

import (
	"testing"

	"github.com/gpuarb/gpuarb/internal/figures"
)

// This file checks the names of users' folders, also for names that cannot be the name of a folder. tree_test.go has
// the files in such a folder.

// TestUserFolderNames: a user's folder has the user's name, or the UID if the name is not valid for a folder, or if it belongs
// to two users.
func TestUserFolderNames(t *testing.T) {
	v := &fakeView{s: sample()}
	v.s.Users = []figures.UserState{{UID: 0, Name: "root"}, {UID: 1, Name: "two words"}, {UID: 2, Name: "DOMAIN\\eve"}, {UID: 3, Name: "a/b"}, {UID: 4}, {UID: 5, Name: ".."},
		{UID: 6, Name: "7"}, {UID: 7, Name: "seven"}, {UID: 8, Name: "twin"}, {UID: 9, Name: "twin"}, {UID: 1 << 31, Name: "10\n"}}
	_, mnt := mountView(t, v)
	want := "2147483648\n3\n4\n5\n6\n8\n9\nDOMAIN\\eve\nroot\nseven\ntwo words\n"
	if got := output(t, "ls", mnt+"/users"); got != want {
		t.Errorf("listed %q, want %q", got, want)
	}
	for _, name := range []string{"root", "two words", "DOMAIN\\eve", "3", "4", "8", "9", "2147483648"} {
		output(t, "cat", mnt+"/users/"+name+"/memory.pressure")
	}
	for _, name := range []string{"0", "1", "7", "twin", "nobody", "10\n", "03"} {
		if _, _, err := run(t, "stat", mnt+"/users/"+name); err == nil {
			t.Errorf("users/%q is there", name)
		}
	}
}
