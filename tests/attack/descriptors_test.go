package attack

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// shortOf is how the daemon says that it has no descriptors left.
const shortOf = "no descriptors left"

// leaveRoom sets the daemon's limit of files so that it can open this many more. What it
// opens for a moment may be in one look, and is not in the next; what it reads of /proc it never
// keeps. Less than none: as many that it has open may be closed, and there is still no room; of those that it
// keeps for itself some may then be beyond the limit.
func leaveRoom(t *testing.T, m *rig.Machine, room int) {
	t.Helper()
	looks := map[int]int{}
	for range 3 {
		dir := fmt.Sprintf("/proc/%d/fd", m.DaemonPID())
		entries, err := os.ReadDir(dir)
		check(t, err)
		for _, e := range entries {
			if target, err := os.Readlink(filepath.Join(dir, e.Name())); err != nil || strings.HasPrefix(target, "/proc/") {
				continue
			}
			n, err := strconv.Atoi(e.Name())
			check(t, err)
			looks[n]++
		}
	}
	limit := 0
	for ; room > 0 || looks[limit] == 3; limit++ {
		if looks[limit] < 3 {
			room--
		}
	}
	limitFiles(t, m, uint64(limit+min(room, 0)))
}

// leaveKept sets the daemon's limit of files so that of those that it has, it can have again no more than
// the first of those that it keeps for itself, whatever else it closes that it opened later.
func leaveKept(t *testing.T, m *rig.Machine) {
	t.Helper()
	kept := -1
	rig.Eventually(t, "it keeps some", func() bool {
		for n := range 1024 {
			file := fmt.Sprintf("/proc/%d/%%s/%d", m.DaemonPID(), n)
			target, _ := os.Readlink(fmt.Sprintf(file, "fd"))
			info, _ := os.ReadFile(fmt.Sprintf(file, "fdinfo"))
			if target == os.DevNull && closesOnExec.Match(info) { // others it was started with
				kept = n
				return true
			}
		}
		return false
	})
	limitFiles(t, m, uint64(kept+1))
}

// closesOnExec is in the fdinfo of what a program opened for itself alone.
var closesOnExec = regexp.MustCompile(`(?m)^flags:\t0*2[0-7]{6}$`)

// newcomer leaves the daemon this much room, and has another client come, until it is let in or
// the daemon has said that it cannot be.
func newcomer(t *testing.T, m *rig.Machine, room int) <-chan error {
	t.Helper()
	limitFiles(t, m, 1024)
	rig.Eventually(t, "nobody else is there", func() bool { return m.Snapshot().Stats.Clients == 1 })
	leaveRoom(t, m, room)
	in := make(chan error, 1)
	go func() {
		var err error = ipc.StatusTooMany
		for errors.Is(err, ipc.StatusTooMany) { // who waits for long is told to come again
			var c *ipc.Client
			if c, err = ipc.Dial(t.Context(), m.Socket); err != nil {
				break
			}
			defer c.Close()
			var s *ipc.ShimSession
			if s, err = c.HelloShim(t.Context(), ipc.HelloRequest{Memory: ipc.NoLimit}); err == nil {
				err = s.Close()
			}
		}
		in <- err
	}()
	rig.Eventually(t, "it is in, or waits", func() bool { return len(in) > 0 || strings.Contains(m.Log(), shortOf) })
	return in
}

// limitFiles sets how many files the daemon may have open, up to the most that it could.
func limitFiles(t *testing.T, m *rig.Machine, files uint64) {
	t.Helper()
	var old unix.Rlimit
	check(t, unix.Prlimit(m.DaemonPID(), unix.RLIMIT_NOFILE, nil, &old))
	check(t, unix.Prlimit(m.DaemonPID(), unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: min(files, old.Max), Max: old.Max}, nil))
}

// TestNoDescriptorsForNewcomers: whichever descriptor it is that the daemon lacks for one
// more client, that one waits and those that are there notice nothing.
func TestNoDescriptorsForNewcomers(t *testing.T) {
	t.Parallel()
	for room := range 4 { // connection, pidfd, page, the page's duplicate that is sent
		t.Run(fmt.Sprintf("%d left", room), func(t *testing.T) {
			t.Parallel()
			m := machine(t, rig.Options{Devices: "1G", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"},
				Config: "schema_version = 1\n[defaults]\nmemory.max = \"100M\"\n"})
			s, slot := shimOf(t, m, 60<<20)
			ask := func(bytes uint64) error {
				_, err := s.Main.Alloc(t.Context(), ipc.AllocRequest{Slot: slot, Kind: ipc.MemoryPlain, Bytes: bytes})
				return err
			}
			in := newcomer(t, m, room)
			for tries := 0; !strings.Contains(m.Log(), shortOf); tries++ { // what was open for a moment was counted as kept
				if check(t, bounded.Receive(t, "it comes in", in)); tries == 100 {
					t.Fatal("there was room each time")
				}
				in = newcomer(t, m, room)
			}
			check(t, ask(40<<20))
			if err := ask(1); err == nil {
				t.Error("a byte beyond its budget was granted to a client that is there")
			}
			limitFiles(t, m, 1024)
			check(t, bounded.Receive(t, "it is let in", in)) // now, or when something was closed before
			if n := strings.Count(m.Log(), shortOf); n > 2 {
				t.Errorf("it was said %d times", n)
			}
			check(t, s.Close())
			m.AllGone()
		})
	}
}

func init() { roles["hoarder"] = hoard }

// hoard takes every connection that is to be had, and asks for more, until it is told to stop.
func hoard(a *attacker) error {
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		var held [64]net.Conn
		for i := 0; ; i = (i + 1) % len(held) {
			select {
			case <-stop:
				return
			default:
			}
			if held[i] != nil {
				_ = held[i].Close()
			}
			if c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: a.socket, Net: "unixpacket"}); err == nil {
				held[i] = c
				_ = c.SetReadDeadline(time.Now().Add(10 * time.Millisecond)) // the word that turns it away
				_, _ = c.Read(make([]byte, 1000))
			}
		}
	}()
	a.next()
	close(stop)
	<-done
	return nil
}

// TestStartedWithoutDescriptors: a program that is started while the daemon has no descriptors
// left is never without its limit. It waits, and then is refused, whoever keeps the
// descriptors; and has its budget when there are some again.
func TestStartedWithoutDescriptors(t *testing.T) {
	t.Parallel()
	const keptAlone = -1
	served := "ready alloc a err 2 alloc b ok alloc c err 2 alloc d ok"
	for name, c := range map[string]struct {
		room int
		ends bool // the shortage, before the program's patience does
		want []string
	}{
		"0 left": {0, true, []string{served}}, "1 left": {1, true, []string{served}},
		"2 left": {2, true, []string{served}}, "3 left": {3, true, []string{served}},
		"for good": {keptAlone, false, []string{"init err 2"}},
		"hoarder":  {20, false, []string{"init err 2", served}}, // between two of his connections it may come in
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := machine(t, rig.Options{Devices: "1G", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"},
				Config: "schema_version = 1\n[defaults]\nmemory.max = \"100M\"\n"})
			first := cudaprog(m)
			say(t, first, "alloc a 1M", "ok")
			first.End()
			m.AllGone()
			if c.room == keptAlone {
				leaveKept(t, m)
			} else {
				leaveRoom(t, m, c.room)
			}
			var other *rig.Program
			if name == "hoarder" {
				other = start(m, "hoarder", "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
				m.AwaitLog(shortOf)
			}
			said := filepath.Join(m.Dir, "said")
			file, err := os.Create(said)
			check(t, err)
			defer file.Close()
			var out bytes.Buffer
			p := m.Command(m.PreloadEnv(), rig.Build(t, "programs/cudaprog-dlsym"), // on_loss is "open"
				"alloc a 101M; alloc b 60M; alloc c 41M; alloc d 40M")
			p.Stdout, p.Stderr = &out, file
			check(t, p.Start())
			ended := make(chan error, 1)
			go func() { ended <- p.Wait() }()
			rig.Eventually(t, "it says that it waits, or found room after all", func() bool {
				text, err := os.ReadFile(said)
				return err == nil && strings.Contains(string(text), "waits") || len(ended) > 0
			})
			if c.ends {
				limitFiles(t, m, 1024)
			}
			_ = bounded.Receive(t, "it ends", ended)
			if got := strings.Join(strings.Fields(out.String()), " "); !slices.Contains(c.want, got) {
				text, _ := os.ReadFile(said)
				t.Errorf("%s, want %q: %s", got, c.want, text)
			}
			if other != nil {
				other.Tell("stop")
				other.Wait()
			}
			limitFiles(t, m, 1024)
			if got := rig.Run(t, m.Command(m.PreloadEnv(), p.Path, "alloc a 1M")); !strings.Contains(got.Stdout, "alloc a ok") {
				t.Errorf("afterwards: %s%s", got.Stdout, got.Stderr)
			}
			m.AllGone()
		})
	}
}

// TestStartedAmongTooManyConnections: two users have all the connections that users may have. A
// third one's programs are not without their limit for that.
func TestStartedAmongTooManyConnections(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G", NoMount: true, Stopped: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"},
		Config: "schema_version = 1\n[defaults]\nmemory.max = \"100M\"\n"})
	m.Use(frugal(t, m, 256)) // that is 64 connections, of which 56 are users'
	m.Start()
	crowded(t, m)
	third := m.Person(61003)
	env := append(m.Env(), "LD_PRELOAD="+third.Program("libgpuarb.so"), "GPUARB_SOCKET="+m.Socket)
	got := rig.Run(t, third.Command(env, third.Program("cudaprog-dlsym"), "alloc a 101M"))
	if !strings.Contains(got.Stdout, "init err 2") || !strings.Contains(got.Stderr, "device memory is refused") {
		t.Errorf("beside them: %s%s", got.Stdout, got.Stderr)
	}
}

// crowded are programs of two users who have taken all the connections that users may have.
func crowded(t *testing.T, m *rig.Machine) {
	t.Helper()
	for i := range 4 { // a process may have a quarter
		crowd := start(m, "crowd", "setpriv", fmt.Sprintf("--reuid=%d", 61001+i%2), "--regid=65534", "--clear-groups")
		crowd.Tell("64")
		crowd.Line()
	}
}

// TestPageAmongTooManyConnections: the page and the metrics, whose process is one more user's, go on when others have taken all
// the connections, which is when somebody looks at them.
func TestPageAmongTooManyConnections(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G", NoMount: true, Stopped: true, Config: "schema_version = 1\n[http]\nlisten = \"127.0.0.1:0\"\n"})
	check(t, os.Chmod(m.Dir, 0o755))
	m.Use(frugal(t, m, 256))
	m.Start()
	m.AwaitLog("the page is served")
	url := "http://" + regexp.MustCompile(`the page is served" listen=(\S+)`).FindStringSubmatch(m.Log())[1]
	client := http.Client{Timeout: bounded.Patience}
	get := func(path string) (int, string) {
		answer, err := client.Get(url + path)
		check(t, err)
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		check(t, err)
		return answer.StatusCode, string(text)
	}
	rig.Eventually(t, "the page has a state", func() bool { code, _ := get("/state"); return code == http.StatusOK })
	follower, err := http.Get(url + "/events") // has it look each second
	check(t, err)
	defer follower.Body.Close()
	crowded(t, m)
	rig.Eventually(t, "others are turned away", func() bool {
		c, err := m.Person(61003).Gpuarb("ps").CombinedOutput()
		return err != nil && strings.Contains(string(c), "connections")
	})
	for since := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		var state struct {
			Time int64 `json:"time_ms"`
		}
		code, text := get("/state")
		if code != http.StatusOK {
			t.Fatalf("the state: %d, %s", code, text)
		}
		if check(t, json.Unmarshal([]byte(text), &state)); state.Time > since.UnixMilli() {
			break
		}
	}
	if code, text := get("/metrics"); code != http.StatusOK {
		t.Errorf("the metrics: %d, %s", code, text)
	}
}

// frugal is a daemon that may have so many files open.
func frugal(t *testing.T, m *rig.Machine, files int) string {
	t.Helper()
	path := filepath.Join(m.Dir, "frugal")
	check(t, bounded.WriteProgram(path, fmt.Appendf(nil, "#!/bin/sh\nulimit -n %d\nexec %s \"$@\"\n", files, gpuarbd(t))))
	return path
}

// TestFilesWithoutDescriptors: what lies under the mount is read as ever while the daemon has no
// descriptor left, by who opens it then, and is written.
func TestFilesWithoutDescriptors(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G", Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}})
	p := cudaprog(m)
	say(t, p, "alloc a 60M", "ok")
	pid := fmt.Sprint(p.PID())
	m.Read("leases")
	leaveRoom(t, m, -4)
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: m.Socket, Net: "unixpacket"})
	check(t, err)
	defer c.Close()
	m.AwaitLog(shortOf)
	for range 100 {
		if leases := m.Read("leases"); !strings.Contains(leases, pid) {
			t.Fatalf("leases: %q", leases)
		}
	}
	limit := filepath.Join(m.Mount, "processes", pid, "memory.max")
	check(t, os.WriteFile(limit, []byte("100M\n"), 0))
	say(t, p, "alloc b 41M", "err 2")
	limitFiles(t, m, 1024)
	say(t, p, "alloc b 40M", "ok")
	if got := m.Read(filepath.Join("processes", pid, "memory.current")); got != fmt.Sprintln(100<<20) {
		t.Errorf("memory.current: %q", got)
	}
	p.End()
	m.AllGone()
}

// TestRestartWithoutDescriptors: a daemon that starts again and has too few to watch the
// programs that run forgets none of them, and none that dies stays.
func TestRestartWithoutDescriptors(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}})
	files, same := 0, 0
	rig.Eventually(t, "the daemon has what it starts with", func() bool {
		before := files
		if files = descriptors(t, m); files != before {
			same = 0
		}
		same++
		return same == 20
	})
	programs, pids := make([]*rig.Program, 16), make([]int, 16)
	// Each takes two, which is too many for all of them, also with those that the daemon keeps
	// for itself; and is enough for the five that stay and for one that comes.
	files += len(programs) + 2
	for i := range programs {
		programs[i] = cudaprog(m)
		say(t, programs[i], "alloc a 50M", "ok")
		pids[i] = programs[i].PID()
		signalTo(t, pids[i], syscall.SIGSTOP) // so that none tells the next daemon what it holds
	}
	m.Kill()
	m.Use(frugal(t, m, files))
	m.Start()
	m.AwaitLog(shortOf)
	var living []*rig.Program
	var stopped []int
	for i, p := range programs {
		if i < 2 || i >= 12 && i < 15 { // the first are watched, the last not, of those that die, too
			living, stopped = append(living, p), append(stopped, pids[i])
			continue
		}
		check(t, syscall.Kill(pids[i], syscall.SIGKILL))
		p.Wait()
	}
	rig.Eventually(t, "those that live have their leases, and they alone", func() bool { return len(m.Snapshot().Leases) == len(living) })
	late := cudaprog(m)
	say(t, late, "alloc a 775M", "err 2") // 1024M less 250M is 774M
	say(t, late, "alloc a 754M", "ok")    // idle credit stays theirs whose page could not be opened
	say(t, late, "free a", "ok")
	late.End()
	m.Kill()
	m.Use(gpuarbd(t))
	m.Start()
	for i, p := range living {
		check(t, syscall.Kill(stopped[i], syscall.SIGCONT))
		say(t, p, "free a", "ok")
		say(t, p, "alloc a 40M", "ok")
	}
	settle(t, m, living)
	for _, p := range living {
		p.End()
	}
	m.AllGone()
}
