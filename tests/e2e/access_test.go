package e2e

import (
	"fmt"
	"os"
	"os/user"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This test holds that a refused connection is explained, with what the user can do about it.

// TestMayNotConnect: a user who may not connect to the daemon reads which group may, and the command that adds a user
// to it. If only the owner may connect, the message names the owner.
func TestMayNotConnect(t *testing.T) {
	t.Parallel()
	const anne, class = 61031, 61032
	m := rig.New(t, rig.Options{Devices: "8G", NoMount: true})
	u, member := m.OtherUser(anne), m.OtherUser(anne, class)
	nobody := m.OtherUser(65534)
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	const daemon = 1 // the group daemon, which every machine knows, as it knows the user nobody
	for _, c := range []struct {
		what string
		user *rig.OtherUser
		gid  int
		mode os.FileMode
		says string
	}{
		{"a group that the machine does not know", u, class, 0o660, fmt.Sprintf("you may not connect to %s; join its group %d, and log in again", m.Socket, class)},
		{"a known group", nobody, daemon, 0o660, "you may not connect to " + m.Socket + "; join its group: `sudo usermod -aG daemon nobody`, and log in again"},
		{"the owner alone", u, class, 0o600, "you may not connect to " + m.Socket + ": only " + me.Username + " may use " + m.Socket},
	} {
		if err := os.Chown(m.Socket, -1, c.gid); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(m.Socket, c.mode); err != nil {
			t.Fatal(err)
		}
		for _, command := range [][]string{{"ps"}, {"run", "--", "true"}} {
			r := rig.Run(t, c.user.Gpuarb(command...))
			if r.Code != 69 && r.Code != 125 || !strings.Contains(r.Stderr, c.says) || strings.Contains(r.Stderr, "no gpuarb daemon answers") {
				t.Errorf("%s, %v: %d %s\nwant %s", c.what, command, r.Code, r.Stderr, c.says)
			}
		}
		if r := rig.Run(t, member.Gpuarb("ps")); c.gid == class && (r.Code == 0) != (c.mode&0o020 != 0) {
			t.Errorf("%s, a member of the group: %d %s", c.what, r.Code, r.Stderr)
		}
	}
}
