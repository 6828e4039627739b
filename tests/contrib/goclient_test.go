package contrib

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file runs the example of docs/reference/go-client.md as readers of the page would.

// TestGoClient builds the program of docs/reference/go-client.md, and runs it beside a program that holds memory and is idle.
func TestGoClient(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/reference/go-client.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllSubmatch(page, -1)
	if len(blocks) != 1 {
		t.Fatalf("%d programs on the page", len(blocks))
	}
	dir, err := os.MkdirTemp(filepath.Dir(rig.Build(t, "gpuarb")), "goclient-") // in the module, so that it finds the package
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.WriteFile(filepath.Join(dir, "main.go"), blocks[0][1], 0o644); err != nil {
		t.Fatal(err)
	}
	m := rig.New(t, rig.Options{Devices: "100M,100M", Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}, Config: "schema_version = 1\n[[rule]]\nname = \"lab\"\nmatch.command = \"*cudaprog*\"\nidle.warn = \"2s\"\n"})
	build := m.Command(os.Environ(), "go", "build", "-o", filepath.Join(dir, "example"), dir)
	if r := rig.Run(t, build); r.Code != 0 {
		t.Fatalf("%+v", r)
	}
	holder := m.Interact(m.Command(m.PreloadEnv(), rig.Build(t, "programs/cudaprog-dlsym"), "--device", "0"))
	pid := holder.PID()
	env := append(m.Env(), "GPUARB_SOCKET="+m.Socket)
	holder.Want("alloc a 30M", "ok")
	r := rig.Run(t, m.Command(env, filepath.Join(dir, "example")))
	for _, want := range []string{fmt.Sprintf("%s's process %d uses %d bytes of GPU 0\n", rig.User(), pid, 30<<20), "has GPU ", "has been idle for "} {
		if r.Code != 0 || !strings.Contains(r.Stdout, want) {
			t.Errorf("no %q: %+v", want, r)
		}
	}
}
