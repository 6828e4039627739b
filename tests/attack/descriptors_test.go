package attack

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold that users cannot make the daemon run out of file descriptors: its bounds of sessions, jobs and
// connections follow from its limit of open files, and leave room for root, for the page and for running programs.
// bounds_test.go has bounds that do not depend on that limit.

func init() { roles["settler"] = settler }

// settler takes all sessions, jobs and connections that one process may have. It closes the connections of the sessions and jobs, which
// live on, and reports the bounds that it met: "sessions N jobs N connections N".
func settler(a *attacker) error {
	count := map[string]int{}
	take := func(what string, more func(*ipc.Client) error) error {
		for {
			c, err := a.dial()
			if err == nil {
				err = more(c)
			}
			switch {
			case errors.Is(err, ipc.StatusTooMany):
				return nil
			case err != nil:
				return fmt.Errorf("%s: %w", what, err)
			}
			count[what]++
		}
	}
	err := errors.Join(
		take("sessions", func(c *ipc.Client) error {
			_, err := c.HelloShim(a.ctx, ipc.HelloRequest{Memory: ipc.NoLimit}) // its page stays mapped
			return errors.Join(err, c.Close())
		}),
		take("jobs", func(c *ipc.Client) error {
			_, err := c.OpenJob(a.ctx, ipc.JobOpenRequest{Memory: ipc.NoLimit, Min: ipc.NoLimit})
			return errors.Join(err, c.Close())
		}),
		take("connections", func(c *ipc.Client) error {
			_, err := c.Hello(a.ctx, ipc.HelloRequest{Kind: ipc.KindTool}) // it stays open
			return err
		}))
	if err != nil {
		return err
	}
	a.say("sessions %d jobs %d connections %d", count["sessions"], count["jobs"], count["connections"])
	a.next()
	return nil
}

// TestBoundsFitTheDescriptors: however few files the daemon may open, users reach the bounds of sessions, jobs and connections
// before the daemon runs out of descriptors. The refusals name the bounds, and root can still see which user reached them.
func TestBoundsFitTheDescriptors(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G", Stopped: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}})
	m.Use(frugal(t, m, 256)) // enough for 32 sessions, 32 jobs, and 64 connections, 56 of them for users
	m.Start()
	p := cudaprog(m)
	say(t, p, "alloc a 60M", "ok")
	for i := range 8 {
		s := start(m, "settler", "setpriv", fmt.Sprintf("--reuid=%d", 61001+i%3), "--regid=65534", "--clear-groups")
		t.Log(s.Line())
	}
	if open := descriptors(t, m); open < 128 || open > 240 {
		t.Errorf("the daemon has %d files open", open)
	}
	say(t, p, "alloc b 60M", "ok")
	if leases := m.Read("leases"); !strings.Contains(leases, fmt.Sprint(p.PID())) {
		t.Errorf("leases: %q", leases)
	}
	if got := rig.Run(t, m.Gpuarb("jobs")); got.Code != 0 || strings.Count(got.Stdout, "61001") == 0 {
		t.Errorf("root's command: %d %s%s", got.Code, got.Stdout, got.Stderr)
	}
	if strings.Contains(m.Log(), "too many open files") {
		t.Error("the daemon ran out of descriptors")
	}
}

// TestStartedWithFewerDescriptors: a daemon whose limit of open files is too low for the running programs says so and does
// not start. With the old limit it resumes them.
func TestStartedWithFewerDescriptors(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}})
	programs := make([]*rig.Program, 9)
	for i := range programs {
		programs[i] = cudaprog(m)
		say(t, programs[i], "alloc a 50M", "ok")
	}
	m.Kill()
	got := rig.Run(t, m.Command(append(m.Env(), rig.NoProcessor...), frugal(t, m, 64), "--socket", m.Socket, "--mount", "none"))
	if want := "9 programs and 0 jobs run, and a limit of 64 open files is enough for 8 and 8"; got.Code != 1 || !strings.Contains(got.Stderr, want) {
		t.Errorf("exit status %d: %s", got.Code, got.Stderr)
	}
	m.Start()
	settle(t, m, programs)
	for _, p := range programs {
		p.End()
	}
	m.AllGone()
}

// TestStartedAmongTooManyConnections: two users have all connections that users may have. The programs of a
// third user are still held to their limit.
func TestStartedAmongTooManyConnections(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G", NoMount: true, Stopped: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"},
		Config: "schema_version = 1\n[defaults]\nmemory.max = \"100M\"\n"})
	m.Use(frugal(t, m, 256)) // enough for 64 connections, 56 of them for users
	m.Start()
	crowded(t, m)
	third := m.OtherUser(61003)
	env := append(m.Env(), "LD_PRELOAD="+third.Program("libgpuarb.so"), "GPUARB_SOCKET="+m.Socket)
	got := rig.Run(t, third.Command(env, third.Program("cudaprog-dlsym"), "alloc a 101M"))
	if !strings.Contains(got.Stdout, "init err 2") || !strings.Contains(got.Stderr, "device memory is refused") {
		t.Errorf("beside them: %s%s", got.Stdout, got.Stderr)
	}
}

// crowded starts programs of two users that take all connections that users may have.
func crowded(t *testing.T, m *rig.Machine) {
	t.Helper()
	for i := range 4 { // one process may have a quarter of them
		crowd := start(m, "crowd", "setpriv", fmt.Sprintf("--reuid=%d", 61001+i%2), "--regid=65534", "--clear-groups")
		crowd.Tell("64")
		crowd.Line()
	}
}

// TestPageAmongTooManyConnections: the page and the metrics keep working when other users have taken all connections.
// An administrator needs them at that moment. Their process runs as a user of its own.
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
	follower, err := http.Get(url + "/events") // makes the page read the state each second
	check(t, err)
	defer follower.Body.Close()
	crowded(t, m)
	rig.Eventually(t, "other clients are refused", func() bool {
		c, err := m.OtherUser(61003).Gpuarb("ps").CombinedOutput()
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

// frugal writes a script that starts the daemon so that it may open at most `files` files, and returns the script's
// path.
func frugal(t *testing.T, m *rig.Machine, files int) string {
	t.Helper()
	path := filepath.Join(m.Dir, "frugal")
	check(t, bounded.WriteProgram(path, fmt.Appendf(nil, "#!/bin/sh\nulimit -n %d\nexec %s \"$@\"\n", files, gpuarbd(t))))
	return path
}
