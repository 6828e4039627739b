package arbitration

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file checks that programs without room on their device are told which other device has room, with the command
// that uses it. The command is then carried out, and the driver's count says whether the program has its memory there.

// TestRefusalNamesTheDeviceWithRoom: all programs use GPU 0, and GPU 1 is empty. The refusal names GPU 1, and the
// command that it prints works.
func TestRefusalNamesTheDeviceWithRoom(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G,24G,12G", NoMount: true})
	prog := rig.Build(t, "programs/cudaprog-dlsym")
	m.Interact(m.Command(m.PreloadEnv(), prog)).Want("alloc a 6G", "ok")
	r := rig.Run(t, m.Command(m.PreloadEnv(), prog, "alloc b 4G"))
	at := strings.Index(r.Stderr, "; GPU 1 has ")
	if at < 0 || !strings.Contains(r.Stderr[at:], "GiB free: `gpuarb run --device 1`, or `--device emptiest`") {
		t.Fatalf("the refusal names no device: %s", r.Stderr)
	}
	for _, device := range []string{"1", "emptiest"} {
		r = rig.Run(t, m.Gpuarb("run", "--device", device, "--", prog, "alloc b 4G"))
		if !strings.Contains(r.Stdout, "alloc b ok") || m.SimNumber("peak", "1") < 4<<30 {
			t.Errorf("--device %s: %s%s", device, r.Stdout, r.Stderr)
		}
	}
}

// TestNoDeviceWithRoomIsNamed: a device is not named if the program would have no room there beside what it holds already,
// if the rule does not allow it, if another job has it alone, or if an earlier request waits for it.
func TestNoDeviceWithRoomIsNamed(t *testing.T) {
	t.Parallel()
	prog := rig.Build(t, "programs/cudaprog-dlsym")
	for name, c := range map[string]struct {
		devices, config string
		other           []string // a run on GPU 1
		holds, asks     string
	}{
		"what it holds counts":   {"8G,8G", "", nil, "5G", "4G"},
		"the rule's devices":     {"8G,24G", "[defaults]\ndevices = [0]\n", nil, "5G", "4G"},
		"somebody has it alone":  {"8G,24G", "", []string{"--device", "1", "--exclusive"}, "5G", "4G"},
		"it has claimed its own": {"8G,24G", "", nil, "5G", "4G"},
		"it is reserved":         {"8G,24G", "", []string{"--device", "1", "--min", "20G"}, "5G", "4G"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := rig.New(t, rig.Options{Devices: c.devices, NoMount: true, Config: "schema_version = 1\n" + c.config})
			if c.other != nil {
				m.Interact(m.Gpuarb(append(append([]string{"run"}, c.other...), "--", prog)...))
			}
			steps := fmt.Sprintf("alloc a %s; alloc b %s", c.holds, c.asks)
			cmd := m.Command(m.PreloadEnv(), prog, steps)
			if name == "it has claimed its own" {
				cmd = m.Gpuarb("claim", "--device", "0", "--exec", "--", prog, steps)
			}
			r := rig.Run(t, cmd)
			if !strings.Contains(r.Stderr, "out of memory on GPU 0") || strings.Contains(r.Stderr, "GPU 1 has") {
				t.Errorf("%s", r.Stderr)
			}
		})
	}
}

// TestWaitingLineNamesTheDeviceWithRoom: the line of a waiting program, `gpuarb why`, its JSON and `gpuarb queue --json` name the device that
// has room; when that is taken too, the next line names none.
func TestWaitingLineNamesTheDeviceWithRoom(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G,8G", NoMount: true})
	prog := rig.Build(t, "programs/cudaprog-dlsym")
	m.Interact(m.Command(m.PreloadEnv(), prog)).Want("alloc a 6G", "ok")
	waits := m.Interact(m.Gpuarb("run", "--wait", "--", prog))
	waits.Tell("alloc b 4G")
	rig.Eventually(t, "the line names GPU 1", func() bool {
		return strings.Contains(waits.Stderr(), "free: `gpuarb run --device 1`, or `--device emptiest`")
	})
	why := rig.Run(t, m.Gpuarb("why")).Stdout
	if !strings.Contains(why, "→ GPU 1 has ") || !strings.Contains(why, "`gpuarb run --device 1`, or `--device emptiest`") || strings.Count(why, "--device emptiest") != 1 {
		t.Errorf("why: %s", why)
	}
	var rows []struct {
		RoomOn *int `json:"room_on"`
	}
	if text := rig.Run(t, m.Gpuarb("queue", "--json")).Stdout; json.Unmarshal([]byte(text), &rows) != nil || len(rows) != 1 || rows[0].RoomOn == nil || *rows[0].RoomOn != 1 {
		t.Errorf("queue --json: %s", text)
	}
	taken := m.Interact(m.Gpuarb("run", "--device", "1", "--", prog))
	taken.Want("alloc c 6G", "ok")
	if why := rig.Run(t, m.Gpuarb("why")).Stdout; strings.Contains(why, "--device emptiest") || !strings.Contains(why, "it goes on when the holders") {
		t.Errorf("why, when GPU 1 is full: %s", why)
	}
}
