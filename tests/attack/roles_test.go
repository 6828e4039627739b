package attack

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file lets the test binary play a role: a process that attacks the daemon on orders of the test. Each role is in the file of its tests.

// role is the main function of an attacker. It reads an order from each line of stdin, and
// answers each with one line on stdout, as rig.Program expects.
type role func(a *attacker) error

// attacker is this process while it plays a role.
type attacker struct {
	ctx    context.Context
	socket string
	in     *bufio.Scanner
}

var roles = map[string]role{}

func play(name string) int {
	a := &attacker{ctx: context.Background(), socket: os.Getenv("GPUARB_SOCKET"), in: bufio.NewScanner(os.Stdin)}
	fmt.Println("ready")
	if err := roles[name](a); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		return 1
	}
	return 0
}

// next returns the next order; ok is false at the end of stdin. It answers the order "pid" itself.
func (a *attacker) next() (words []string, ok bool) {
	for a.in.Scan() {
		if a.in.Text() != "pid" {
			return strings.Fields(a.in.Text()), true
		}
		a.say("pid ok %d", os.Getpid())
	}
	return nil, false
}

func (a *attacker) say(format string, args ...any) { fmt.Printf(format+"\n", args...) }

func (a *attacker) dial() (*ipc.Client, error) { return ipc.Dial(a.ctx, a.socket) }

// lease opens a session with a lease on a device.
func (a *attacker) lease(device ipc.UUID) (*ipc.ShimSession, uint32, error) {
	c, err := a.dial()
	if err != nil {
		return nil, 0, err
	}
	s, err := c.HelloShim(a.ctx, ipc.HelloRequest{Memory: ipc.NoLimit})
	if err != nil {
		return nil, 0, err
	}
	at, err := s.Main.Attach(a.ctx, device)
	return s, at.Slot, err
}

func parseUUID(text string) (id ipc.UUID) {
	if n, err := hex.Decode(id[:], []byte(text)); err != nil || n != len(id) {
		panic("no UUID: " + text)
	}
	return id
}

// start starts this binary in a role. The words in before name a program that starts it, such as setpriv.
// In that case the files that the role needs become readable for all users.
func start(m *rig.Machine, name string, before ...string) *rig.Program {
	m.T.Helper()
	self, err := os.Executable()
	if err != nil {
		m.T.Fatal(err)
	}
	if len(before) > 0 {
		if err := os.Chmod(m.Dir, 0o755); err != nil {
			m.T.Fatal(err)
		}
		text, err := os.ReadFile(self)
		if err != nil {
			m.T.Fatal(err)
		}
		self = filepath.Join(m.Dir, "attacker")
		if err := bounded.WriteProgram(self, text); err != nil && !errors.Is(err, unix.ETXTBSY) {
			m.T.Fatal(err)
		}
	}
	words := append(before, self)
	env := append(m.Env(), "GPUARB_SOCKET="+m.Socket, roleVariable+"="+name)
	return m.Interact(m.Command(env, words[0], words[1:]...))
}
