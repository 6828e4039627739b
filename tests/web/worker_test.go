package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file tests the process that serves the page: its privileges, its end, and which command lines it shows. page_test.go tests the page itself.

// TestWithoutPrivileges checks what the kernel reports about the process that serves the page: its user, groups, capabilities and descriptors.
func TestWithoutPrivileges(t *testing.T) {
	t.Parallel()
	m := newMachine(t, rig.Options{})
	m.url() // it has read its settings
	_, pid := m.page()
	status, err := os.ReadFile(filepath.Join("/proc", pid, "status"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`\nNoNewPrivs:\t1\n`, `\nGroups:\t *\n`, `\nCapInh:\t0+\n`, `\nCapPrm:\t0+\n`, `\nCapEff:\t0+\n`, `\nCapAmb:\t0+\n`,
		`\nUid:\t([1-9]\d*)\t[1-9]\d*\t[1-9]\d*\t[1-9]\d*\n`, `\nGid:\t[1-9]\d*\t[1-9]\d*\t[1-9]\d*\t[1-9]\d*\n`,
	} {
		if strings.Contains(want, "id:") && os.Geteuid() != 0 || strings.Contains(want, "Groups") && os.Geteuid() != 0 {
			continue // it runs as its daemon's user
		}
		if !regexp.MustCompile(want).Match(status) {
			t.Errorf("no %s in\n%s", want, status)
		}
	}
	checkDescriptors(t, pid)
	environ, err := os.ReadFile(filepath.Join("/proc", pid, "environ"))
	if err != nil || string(environ) != "GPUARB_DISABLE=1\x00" {
		t.Errorf("its environment is %q, %v", environ, err)
	}
}

// checkDescriptors checks that the process inherited only its settings, its listening socket and its standard error.
func checkDescriptors(t *testing.T, pid string) {
	t.Helper()
	links, err := filepath.Glob(filepath.Join("/proc", pid, "fd/*"))
	if err != nil || len(links) < 4 {
		t.Fatalf("%q, %v", links, err)
	}
	own := regexp.MustCompile(`^(pipe:|socket:|anon_inode:\[event(poll|fd)\]|/dev/null$|/sys/fs/cgroup/)`) // the last are the Go runtime's own
	for _, link := range links {
		to, err := os.Readlink(link)
		if err == nil && !own.MatchString(to) {
			t.Errorf("it has %s", to)
		}
	}
}

// lives reports whether a process runs; a zombie does not.
func lives(pid string) bool {
	stat, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}

// TestNoWayToTheSocket closes the daemon's folder to the user of the page's process. It checks that the log says that
// nothing is served, and why, and that connections are refused, until the folder is open.
func TestNoWayToTheSocket(t *testing.T) {
	t.Parallel()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	free.Close()
	m := machine{rig.New(t, rig.Options{Config: config(address), NoMount: true, Stopped: true})}
	if err := os.Chmod(m.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	m.Start()
	if os.Geteuid() != 0 { // for an ordinary user the process runs as the owner of the folder
		m.url()
		return
	}
	m.AwaitLog("who may not come to the daemon's socket " + m.Socket + ": permission denied")
	m.AwaitLog("the page is not served; it is tried again")
	if served.MatchString(m.Log()) {
		t.Errorf("it is said to be served:\n%s", m.Log())
	}
	rig.Eventually(t, "connections are refused", func() bool { return refuses(t, address) })
	if err := os.Chmod(m.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	m.url()
}

// refuses reports whether nothing listens at an address. While the process tries to serve, a connection may be
// accepted, but must end at once.
func refuses(t *testing.T, address string) bool {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return errors.Is(err, unix.ECONNREFUSED)
	}
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(bounded.Patience))
	if _, err := conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal("a connection is accepted but not answered")
	}
	return false
}

// TestEndsWithTheDaemon: the page's process ends with the daemon, in whatever way the daemon ends.
func TestEndsWithTheDaemon(t *testing.T) {
	t.Parallel()
	m := newMachine(t, rig.Options{NoMount: true})
	for name, end := range map[string]func(){"SIGKILL": m.Kill, "SIGTERM": m.Stop} {
		_, pid := m.page()
		if !lives(pid) {
			t.Fatalf("the process %s does not live", pid)
		}
		end()
		rig.Eventually(t, "the page's process ends with the daemon by "+name, func() bool { return !lives(pid) })
		m.Start()
		rig.Eventually(t, "another one serves", func() bool { _, now := m.page(); return now != pid })
	}
}

// TestStartedAgain: if the process dies, another process serves at the same address, and the daemon is otherwise unaffected.
func TestStartedAgain(t *testing.T) {
	t.Parallel()
	m := newMachine(t, rig.Options{NoMount: true})
	url := m.url()
	_, pid := m.page()
	n, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(n, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, "another one serves", func() bool { _, now := m.page(); return now != pid })
	if again := m.url(); again != url {
		t.Errorf("the page was at %s and is at %s", url, again)
	}
	m.AwaitLog("the page is not served; it is tried again")
}

// reload makes the daemon read another configuration.
func (m machine) reload(text string) {
	m.T.Helper()
	if err := os.WriteFile(filepath.Join(m.Dir, "gpuarb.toml"), []byte(text), 0o600); err != nil {
		m.T.Fatal(err)
	}
	before := strings.Count(m.Log(), "configuration read again")
	if err := unix.Kill(m.DaemonPID(), unix.SIGHUP); err != nil {
		m.T.Fatal(err)
	}
	rig.Eventually(m.T, "the configuration is read", func() bool { return strings.Count(m.Log(), "configuration read again") > before })
}

// TestReload: a reload moves the page to a Unix socket, and another reload removes the page.
func TestReload(t *testing.T) {
	t.Parallel()
	m := newMachine(t, rig.Options{NoMount: true})
	m.url()
	address, pid := m.page()
	m.reload(config("127.0.0.1:0"))
	if !lives(pid) {
		t.Error("a reload that changes nothing has ended it")
	}
	path := filepath.Join(m.Dir, "http")
	m.reload(config("unix:" + path))
	client := http.Client{Timeout: bounded.Patience, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}}}
	var text []byte
	rig.Eventually(t, "the page is at the socket", func() bool {
		answer, err := client.Get("http://localhost/")
		if err != nil {
			return false
		}
		defer answer.Body.Close()
		text, err = io.ReadAll(answer.Body)
		return err == nil && answer.StatusCode == http.StatusOK
	})
	if !strings.Contains(string(text), "<title>gpuarb</title>") {
		t.Errorf("the page is %s", text)
	}
	wantMode := os.FileMode(0o600)
	if os.Geteuid() == 0 {
		wantMode = 0o666
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != wantMode {
		t.Errorf("the socket is %v, %v", info, err)
	}
	rig.Eventually(t, "the first process has ended", func() bool { return !lives(pid) })
	if _, err := net.Dial("tcp", address); err == nil {
		t.Errorf("a process still listens at %s", address)
	}
	_, pid = m.page()
	m.reload(config("none"))
	rig.Eventually(t, "the page's process and socket are gone", func() bool { _, err := os.Stat(path); return err != nil && !lives(pid) })
}

// TestOnlyOwnCommands: with commands = "own", only the program's user and root see its arguments, in files, over the socket and on the page.
func TestOnlyOwnCommands(t *testing.T) {
	t.Parallel()
	const secret = "--token=secret"
	m := newMachine(t, rig.Options{Config: config("127.0.0.1:0") + "[privacy]\ncommands = \"own\"\n"})
	ann, bob := m.OtherUser(61001), m.OtherUser(61002)
	p := ann.Bare("-", secret)
	p.Want("alloc a 1M", "ok")
	url := m.url()
	leases := filepath.Join(m.Mount, "leases")
	shown := func(who string, text string, want bool) {
		t.Helper()
		if !strings.Contains(text, "cudaprog-dlsym") || strings.Contains(text, secret) != want {
			t.Errorf("%s is shown, where the arguments being there is to be %t:\n%s", who, want, text)
		}
	}
	for who, user := range map[string]*rig.OtherUser{"ann": ann, "bob": bob} {
		shown(who, rig.Run(t, user.Gpuarb("ps")).Stdout, who == "ann")
		shown(who, rig.Run(t, user.Command(m.Env(), "cat", leases)).Stdout, who == "ann")
	}
	shown("root", rig.Run(t, m.Gpuarb("ps", "--json")).Stdout, true)
	shown("root", m.Read("leases.json"), true)
	var state string
	rig.Eventually(t, "the page has the lease", func() bool {
		state = get(t, url+"state")
		return strings.Contains(state, "cudaprog-dlsym")
	})
	shown("everybody", state, false)
	rig.Eventually(t, "the last hour has it too", func() bool { return strings.Contains(get(t, url+"history"), "cudaprog-dlsym") })
	shown("everybody", get(t, url+"history"), false)

	_, pid := m.page() // a lease of the user as whom the process runs: all users may see the page, so it must hide these arguments, too
	info, err := os.Stat("/proc/" + pid)
	if err != nil {
		t.Fatal(err)
	}
	uid := int(info.Sys().(*syscall.Stat_t).Uid)
	own := m.OtherUser(uid).Bare("-", secret)
	own.Want("alloc a 3M", "ok")
	rig.Eventually(t, "the page has a lease of its own process's user", func() bool {
		state = get(t, url+"state")
		return strings.Contains(state, fmt.Sprintf(`"pid":%d`, own.Process()))
	})
	shown("everybody", state, false)
	m.reload(config("127.0.0.1:0"))
	shown("bob, who may", rig.Run(t, bob.Gpuarb("ps")).Stdout, true)
}

func get(t *testing.T, url string) string {
	t.Helper()
	client := http.Client{Timeout: bounded.Patience}
	answer, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestCommandsAreForgotten: when users are shown only their own command lines from now on, neither the page nor the events show an older command line.
func TestCommandsAreForgotten(t *testing.T) {
	t.Parallel()
	m := newMachine(t, rig.Options{})
	url := m.url()
	p := m.Interact(m.Gpuarb("run", "--", rig.Build(t, "programs/cudaprog-dlsym"), "--device", "0"))
	p.Want("alloc a 1M", "ok")
	rig.Eventually(t, "the page remembers the command line", func() bool { return strings.Contains(get(t, url+"history"), "--device") })
	if text := m.Read("events"); !strings.Contains(text, "--device") {
		t.Errorf("the events do not have it: %s", text)
	}
	file, err := os.OpenFile(filepath.Join(m.Dir, "gpuarb.toml"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = file.WriteString("[privacy]\ncommands = \"own\"\n")
	if err = errors.Join(err, file.Close(), unix.Kill(m.DaemonPID(), unix.SIGHUP)); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, "the page is served again", func() bool { return len(served.FindAllString(m.Log(), -1)) == 2 })
	url = m.url()
	if os.Geteuid() != 0 {
		return // the daemon's own user may see the user's own command lines
	}
	p.Want("alloc b 90G", "err 2")
	rig.Eventually(t, "the program is on the page", func() bool { return strings.Contains(get(t, url+"history"), "cudaprog-dlsym") })
	for name, text := range map[string]string{"events": m.Read("events"), "/history": get(t, url+"history"), "/state": get(t, url+"state")} {
		if strings.Contains(text, "--device") || name == "events" && !strings.Contains(text, "cudaprog-dlsym") {
			t.Errorf("%s: %s", name, text)
		}
	}
}
