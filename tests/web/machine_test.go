package web

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"testing"

	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file has no test. It starts a daemon that serves the page, and finds the page's address and process in
// the daemon's log.

// machine is a machine whose daemon serves the page.
type machine struct {
	*rig.Machine
}

func newMachine(t *testing.T, o rig.Options) machine {
	t.Helper()
	if o.Config == "" {
		o.Config = config("127.0.0.1:0")
	}
	o.Stopped = true
	m := machine{rig.New(t, o)}
	// The page's process runs as another user, and must reach the socket.
	if err := os.Chmod(m.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	m.Start()
	return m
}

func config(listen string) string {
	return fmt.Sprintf("schema_version = 1\n[http]\nlisten = %q\n", listen)
}

var served = regexp.MustCompile(`the page is served" listen=(\S+) pid=(\d+)`)

// page returns the page's address and the PID of the process that serves it, from the last such line of the log.
func (m machine) page() (address, pid string) {
	m.T.Helper()
	var found []string
	rig.Eventually(m.T, "the page is served", func() bool {
		all := served.FindAllStringSubmatch(m.Log(), -1)
		if len(all) == 0 {
			return false
		}
		found = all[len(all)-1]
		return true
	})
	return found[1], found[2]
}

// url returns the page's address, once its process has the daemon's state.
func (m machine) url() string {
	m.T.Helper()
	address, _ := m.page()
	url := "http://" + address + "/"
	client := http.Client{Timeout: bounded.Patience}
	rig.Eventually(m.T, "the page has a state", func() bool {
		answer, err := client.Get(url + "state")
		if err != nil {
			return false
		}
		answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	})
	return url
}
