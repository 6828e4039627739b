package events

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/internal/events"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold that one user's events neither crowd out other users' events nor reveal more than the configuration
// allows. kinds_test.go has the events themselves.

// TestFlood: a program that is refused without a pause cannot fill the events: only as many lines as a user may have in
// a second are written, and a further line has the number of suppressed events. A client that follows the events
// without reading them delays no other client, and finds all lines afterwards.
func TestFlood(t *testing.T) {
	t.Parallel()
	m := machine(t)
	p := program(m)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c, err := ipc.Dial(ctx, m.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	stopped, release := make(chan struct{}), make(chan struct{})
	var followed strings.Builder
	read := 0
	ended := make(chan error, 1)
	go func() {
		ended <- c.Events(ctx, ipc.EventsRequest{Flags: ipc.EventsFollow}, func(part ipc.EventsPart, lines []byte) error {
			if read++; read == 1 {
				close(stopped)
				<-release
			}
			followed.Write(lines)
			if strings.Contains(followed.String(), `"reason":"pace"`) {
				cancel()
			}
			return nil
		})
	}()
	bounded.Receive(t, "the follower has begun", stopped)
	attempts := 2000
	refuse(m, p, attempts)
	rig.Eventually(t, "each refusal is told of or counted", func() bool {
		refuse(m, p, 1)
		attempts++
		told, counted := 0, 0
		for _, e := range parse(t, m.Read("events")) {
			switch {
			case e.Kind == events.Refused:
				told++
			case e.Kind == events.Lost && e.Reason == "pace" && e.UID != nil:
				counted += e.LostLines
			}
		}
		return told < attempts && told+counted == attempts
	})
	close(release)
	bounded.Receive(t, "the follower has read all", ended)
	if got := followed.String(); !strings.HasPrefix(m.Read("events"), got) {
		t.Errorf("what the follower read is not what there is:\n%s", got)
	}
}

// TestPrivacy: all users may read all events, like all leases. If users are shown only their own command lines, no event has arguments.
func TestPrivacy(t *testing.T) {
	t.Parallel()
	for config, want := range map[string]string{"": " --device 0", "[privacy]\ncommands = \"own\"\n": ""} {
		m := rig.New(t, rig.Options{Devices: "100M", Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}, Config: "schema_version = 1\n" + config})
		p := m.Interact(m.Gpuarb("run", "--", rig.Build(t, "programs/cudaprog-dlsym"), "--device", "0"))
		refuse(m, p, 1)
		other := m.OtherUser(61103)
		got := rig.Run(t, other.Command(m.Env(), "cat", filepath.Join(m.Mount, "events")))
		if got.Code != 0 || got.Stdout != m.Read("events") {
			t.Errorf("another user reads %d %s%s", got.Code, got.Stdout, got.Stderr)
		}
		command := rig.Build(t, "programs/cudaprog-dlsym") + want
		if want == "" {
			command = "cudaprog-dlsym"
		}
		for _, e := range parse(t, got.Stdout) {
			if e.Command != "" && e.Command != command || want == "" && strings.Contains(e.Text, "--device") {
				t.Errorf("with %q: %+v", config, e)
			}
		}
		p.CloseStdin()
	}
}
