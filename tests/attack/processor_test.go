package attack

import (
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This test holds that the processor is arbitrated like a device, for clients that name it by its UUID. The client
// speaks the protocol itself; tests/e2e/processor_test.go has real programs.

// processorUUID is the UUID by which programs that compute on the processor request it.
var processorUUID = ipc.UUID([]byte("gpuarb:processor"))

func init() {
	// computing takes memory of a device, named by its UUID, and reports the result of each request.
	roles["computing"] = func(a *attacker) error {
		var s *ipc.ShimSession
		var slot uint32
		for words, ok := a.next(); ok; words, ok = a.next() {
			var err error
			switch words[0] {
			case "attach":
				s, slot, err = a.lease(parseUUID(words[1]))
			case "alloc":
				var n uint64
				if n, err = strconv.ParseUint(words[1], 10, 64); err == nil {
					_, err = s.Main.Alloc(a.ctx, ipc.AllocRequest{Slot: slot, Kind: ipc.MemoryPlain, Bytes: n, Thread: 1})
				}
			}
			if err != nil {
				a.say("%s err %v", words[0], err)
			} else {
				a.say("%s ok", words[0])
			}
		}
		return nil
	}
}

// TestProcessorIsArbitrated: a program gets a lease on the processor by its UUID, and the budget in the rules holds. The program
// keeps its memory over a restart of the daemon. All of it is free when the program is killed.
func TestProcessorIsArbitrated(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	check(t, os.WriteFile(filepath.Join(folder, "pocl.icd"), []byte("libpocl.so.2\n"), 0o600))
	m := machine(t, rig.Options{Devices: "1G,1G", NoMount: true, CPU: true, Environ: []string{"OCL_ICD_VENDORS=" + folder},
		Config: "schema_version = 1\n[defaults]\nmemory.max = \"64MiB\"\nmemory.min = \"32MiB\"\ncontext_reserve = \"1MiB\"\n"})
	p := start(m, "computing")
	say(t, p, "attach "+hex.EncodeToString(processorUUID[:]), "ok")
	say(t, p, fmt.Sprintf("alloc %d", 40*mib), "ok")
	over := p.Ask(fmt.Sprintf("alloc %d", 30*mib))
	if !strings.Contains(over, "out of memory on the processor") || strings.Contains(over, "GPU") {
		t.Errorf("beyond the budget: %s", over)
	}
	device := func() figures.DeviceState { return m.Processor() }
	if d := device(); d.Used != 40*mib || d.Committed < 40*mib || d.Reserved != 0 || d.Overhead != 0 {
		t.Errorf("it holds 40 MiB: %+v", d)
	}
	if d := m.Snapshot().Devices[0]; d.Reserved != 32*mib {
		t.Errorf("a rule reserves %d of a GPU", d.Reserved)
	}
	m.Kill()
	m.Start()
	if d := device(); d.Used != 40*mib {
		t.Errorf("after a restart of the daemon it holds %d", d.Used)
	}
	p.Signal(unix.SIGKILL)
	p.Wait()
	m.AllGone()
	if d := device(); d.Used != 0 || d.Granted != 0 || d.Committed != 0 || d.Unmanaged != 0 {
		t.Errorf("killed: %+v", d)
	}
}
