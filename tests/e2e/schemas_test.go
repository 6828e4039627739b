package e2e

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold that what a real daemon sends and shows as JSON is valid by the schemas in docs/reference. cmd/gpuarb/json_test.go has the
// commands with states that a test cannot make with programs.

// schema returns a schema of docs/reference; definition is the name of one of its definitions, or empty.
func schema(t *testing.T, file, definition string) *jsonschema.Resolved {
	t.Helper()
	text, err := os.ReadFile("../../docs/reference/" + file)
	if err != nil {
		t.Fatal(err)
	}
	whole := new(jsonschema.Schema)
	if err := json.Unmarshal(text, whole); err != nil {
		t.Fatal(err)
	}
	if definition != "" {
		whole = whole.Defs[definition]
	}
	resolved, err := whole.Resolve(nil)
	if err != nil {
		t.Fatalf("%s, %q: %v", file, definition, err)
	}
	return resolved
}

// valid checks that a text is JSON and valid.
func valid(t *testing.T, what string, s *jsonschema.Resolved, text []byte) {
	t.Helper()
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		t.Fatalf("%s: %v\n%s", what, err, text)
	}
	if err := s.Validate(value); err != nil {
		t.Errorf("%s: %v\n%s", what, err, text)
	}
}

// TestSchemas: the snapshot, /gpu/leases.json and the commands' --json are valid by their schemas, on an idle machine and on one where programs
// hold, wait, are refused, have limits, or run without the library.
func TestSchemas(t *testing.T) {
	t.Parallel()
	config := "schema_version = 1\n[[rule]]\nname = \"lab\"\nmatch.user = \"*\"\nscope = \"user\"\nmemory.max = \"900M\"\n[[device]]\nslots.max = 8\n"
	m := rig.New(t, rig.Options{Devices: "1G,1G", Config: config})
	snapshot, leases := schema(t, "snapshot.schema.json", ""), schema(t, "json.schema.json", "gpuarb ps")
	check := func(when string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), bounded.Patience)
		defer cancel()
		c, err := ipc.Dial(ctx, m.Socket)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		text, err := c.Snapshot(ctx)
		if err != nil {
			t.Fatal(err)
		}
		valid(t, when+": the snapshot", snapshot, text)
		valid(t, when+": leases.json", leases, []byte(m.Read("leases.json")))
		for _, command := range []string{"ps", "jobs", "queue", "devices", "why", "version", "doctor", "limit --device 0", "limit --user root"} {
			r := rig.Run(t, m.Gpuarb(append(strings.Fields(command), "--json")...))
			valid(t, when+": gpuarb "+command, schema(t, "json.schema.json", "gpuarb "+strings.Fields(command)[0]), []byte(r.Stdout))
		}
	}
	check("idle")
	program := rig.Build(t, "programs/cudaprog-dlsym")
	holder := m.Interact(m.Gpuarb("run", "--name", "holder", "--memory", "800M", "--min", "100M", "--", program))
	holder.Want("alloc a 700M", "ok")
	holder.Want("alloc b 200M", "err 2")
	waiter := m.Interact(m.Gpuarb("run", "--name", "waiter", "--wait", "--", program))
	waiter.Tell("alloc c 400M")
	beside := m.Interact(m.Command(m.Env(), program, "--device", "1"))
	beside.Want("alloc d 50M", "ok")
	if r := rig.Run(t, m.Gpuarb("limit", "--user", "root", "memory.max=950M")); r.Code != 0 {
		t.Fatalf("%+v", r)
	}
	rig.Eventually(t, "one waits, and one is unmanaged", func() bool {
		s := m.Snapshot()
		return len(s.Queue) == 1 && len(s.Devices[1].UnmanagedBy) == 1
	})
	check("busy")
}
