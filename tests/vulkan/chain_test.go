package vulkan

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file shows that the library works as a layer among other Vulkan layers, is loaded only when its variable
// is set, and stays out of the way of frequent calls. The validation layer and the loader must say what they
// say without the library.

// commands lists all commands of vkprog; together they destroy what they make.
var commands = []string{"instance i;heaps i;heaps2 i", "device d i;device e i", "alloc a d 1M;dedicated b d 1003;image c d 64 64",
	"exportable x d 1M;import y e x;host h d 1M", "touch a;touch y;dispatch d 3;storm d 4 50;devices i 2 3",
	"free a;free b;free c;free y;free x;free h", "drop d;drop e;end i"}

// TestValidation: with the library in the chain, before or behind the validation layer, that layer
// reports the same as without the library. It also reports a deliberate mistake.
func TestValidation(t *testing.T) {
	t.Parallel()
	m := machine(t, "1G")
	// The validation layer reports memory that is not freed when its device ends.
	mistaken := append([]string{"instance i;device d i;alloc left d 1M;drop d;end i"}, commands...)
	for _, way := range []string{"link", "device"} {
		said := func(layers ...string) string {
			cmd := m.Command(m.PreloadEnv(), rig.Build(t, "programs/vkprog-"+way), mistaken...)
			r := rig.Run(t, vulkan(m, cmd, chain(m, layers...)...))
			if r.Code != 0 || strings.Contains(r.Stdout, "err") {
				t.Errorf("%s: code %d\n%s\n%s", layers, r.Code, r.Stdout, r.Stderr)
			}
			return handles.ReplaceAllString(r.Stdout, "HANDLE")
		}
		bare := said(validation)
		if !strings.Contains(bare, "VUID-vkDestroyDevice") {
			t.Fatalf("the validation layer finds no mistake:\n%s", bare)
		}
		for _, layers := range [][]string{{ours, validation}, {validation, ours}} {
			if got := said(layers...); got != bare {
				t.Errorf("%s: with %s it says\n%s\nand without ours\n%s", way, layers, got, bare)
			}
		}
	}
}

// handles matches the parts of the output that differ between two runs.
var handles = regexp.MustCompile(`0x[0-9a-f]+|ok \d+`)

// TestLoaderFindsNothing: the loader, with all messages on, has no complaint that it does not have
// without the library. It names the library at the expected place in the chains of instance and
// device.
func TestLoaderFindsNothing(t *testing.T) {
	t.Parallel()
	m := machine(t, "1G")
	said := func(layers ...string) string {
		cmd := m.Command(m.PreloadEnv(), rig.Build(t, "programs/vkprog-link"), commands...)
		r := rig.Run(t, vulkan(m, cmd, append(chain(m, layers...), "VK_LOADER_DEBUG=all")...))
		if r.Code != 0 {
			t.Errorf("code %d\n%s", r.Code, r.Stderr)
		}
		return r.Stderr
	}
	bare, with := said(), said(ours)
	known := complaints(bare)
	for _, line := range complaints(with) {
		if !slices.Contains(known, line) {
			t.Errorf("the loader complains: %s", line)
		}
	}
	for _, want := range []string{"Insert instance layer \"" + ours, "Inserted device layer \"" + ours} {
		if !strings.Contains(with, want) {
			t.Errorf("the loader does not say %q:\n%s", want, with)
		}
	}
}

// complaints returns the loader's warnings, except for the warning about the variable that names
// layers.
func complaints(said string) []string {
	lines := regexp.MustCompile(`(?m)^(ERROR|WARNING|.*[Ff]ailed|.*[Uu]nable).*$`).FindAllString(said, -1)
	return slices.DeleteFunc(lines, func(line string) bool { return strings.Contains(line, "env var 'VK_INSTANCE_LAYERS' defined") })
}

// TestOtherLayers: with other layers before and behind it, the library counts exactly the bytes
// that reach the driver, and refuses requests over the limit.
func TestOtherLayers(t *testing.T) {
	t.Parallel()
	m := machine(t, "1G")
	for _, layers := range [][]string{
		{ours, mangohud}, {mangohud, ours}, {ours, overlay}, {overlay, ours}, {witness, ours},
		{mangohud, ours, overlay, validation}, {validation, overlay, ours, mangohud},
	} {
		cmd := m.Command(append(m.PreloadEnv(), "GPUARB_MEMORY=8M"), rig.Build(t, "programs/vkprog-device"))
		p := m.Interact(vulkan(m, cmd, append(chain(m, layers...), "MANGOHUD_CONFIG=no_display", "HOME="+m.Dir, "VK_LOADER_DEBUG=layer")...))
		p.Want("instance i", "ok")
		p.Want("device d i", "ok")
		before := uint64(m.Lease(p.PID(), m.First()).Used)
		p.Want("alloc a d 5M", "ok")
		p.Want("alloc b d 5M", "err -2")
		uses(m, p, before+5*mib)
		p.Want("dispatch d 2", "ok")
		p.Want("free a", "ok")
		uses(m, p, before)
		p.Want("drop d", "ok")
		p.Want("end i", "ok")
		if got := called.FindAllStringSubmatch(p.End(), -1); !ends(got, layers) {
			t.Errorf("want %v: the loader says %v", layers, got)
		}
	}
}

// called matches the loader's lines on the order of layers, for the instance first and then for the
// device.
var called = regexp.MustCompile(`(?m)^LAYER: +(VK_LAYER_\w+)$`)

// ends reports whether the last layers that the loader named are these.
func ends(named [][]string, layers []string) bool {
	for i, name := range layers {
		if at := len(named) - len(layers) + i; at < 0 || named[at][1] != name {
			return false
		}
	}
	return true
}

// TestNothingOnTheWay: the most frequent calls of a program go directly to the driver, as without
// the library.
func TestNothingOnTheWay(t *testing.T) {
	t.Parallel()
	m := machine(t, "1G")
	names := []string{"vkCmdDraw", "vkCmdDrawIndexed", "vkCmdDrawIndirect", "vkCmdDispatch", "vkCmdDispatchIndirect", "vkCmdPipelineBarrier",
		"vkCmdCopyBuffer", "vkCmdBindPipeline", "vkCmdBindDescriptorSets", "vkCmdPushConstants", "vkBeginCommandBuffer", "vkEndCommandBuffer",
		"vkQueueSubmit", "vkQueueWaitIdle", "vkWaitForFences", "vkUpdateDescriptorSets", "vkMapMemory", "vkUnmapMemory",
		"vkBindBufferMemory", "vkBindImageMemory", "vkCreateBuffer", "vkCreateImage", "vkGetBufferMemoryRequirements"}
	where := func(environ []string) map[string]string {
		p := m.Interact(vulkan(m, m.Command(m.PreloadEnv(), rig.Build(t, "programs/vkprog-device")), environ...))
		p.Want("instance i", "ok")
		p.Want("device d i", "ok")
		all := map[string]string{}
		for _, name := range append(names, "vkAllocateMemory") {
			all[name] = p.Ask("whose d " + name)
		}
		p.End()
		return all
	}
	bare, with := where(nil), where(alone(m))
	for _, name := range names {
		if with[name] != bare[name] || !strings.HasPrefix(with[name], "ok libvulkan_lvp.so") {
			t.Errorf("%s leads to %s, without the library to %s", name, with[name], bare[name])
		}
	}
	if with["vkAllocateMemory"] != "ok libgpuarb.so" {
		t.Errorf("vkAllocateMemory leads to %s", with["vkAllocateMemory"])
	}
}

// installed installs the library as an implicit layer, which a variable enables.
func installed(m *rig.Machine) string {
	m.T.Helper()
	folder := filepath.Join(m.Dir, "vulkan", "implicit_layer.d")
	text, err := os.ReadFile(built(m))
	if err == nil {
		err = os.MkdirAll(folder, 0o700)
	}
	if err == nil {
		path := regexp.MustCompile(`"library_path": *"[^"]*"`)
		library := fmt.Sprintf(`"library_path": %q`, rig.Build(m.T, "libgpuarb.so"))
		err = os.WriteFile(filepath.Join(folder, ours+".json"), path.ReplaceAll(text, []byte(library)), 0o600)
	}
	if err != nil {
		m.T.Fatal(err)
	}
	return "XDG_DATA_HOME=" + m.Dir
}

// TestInstalled: an installed layer counts if its variable is set, with and without the preload. If
// the variable is not set, the loader does not even open the library.
func TestInstalled(t *testing.T) {
	t.Parallel()
	m := machine(t, "1G")
	for _, c := range []struct {
		name    string
		environ []string
		opened  bool
	}{
		{"on", []string{"GPUARB_VULKAN=1"}, true},
		{"off", nil, false},
		{"disabled by name", []string{"GPUARB_VULKAN=1", "VK_LOADER_LAYERS_DISABLE=" + ours, "GPUARB_VULKAN_DISABLE=1"}, false},
	} {
		cmd := m.Command(append(m.Env(), "GPUARB_SOCKET="+m.Socket), rig.Build(t, "programs/vkprog-link"))
		p := m.Interact(vulkan(m, cmd, append(c.environ, installed(m))...))
		p.Want("instance i", "ok")
		p.Want("device d i", "ok")
		p.Want("alloc a d 5M", "ok")
		maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", p.PID()))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(string(maps), "libgpuarb"); got != c.opened {
			t.Errorf("%s: the library is opened: %v", c.name, got)
		}
		if c.opened {
			uses(m, p, 5*mib)
		} else if s := m.Snapshot(); len(s.Leases) != 0 {
			t.Errorf("%s: %+v", c.name, s.Leases)
		}
		p.Want("drop d", "ok")
		p.End()
		idle(m)
	}
}

// TestVariablesOfTheUser: under gpuarb run the library is in the chain whatever variables of the
// loader the user has set, together with the layers that those name. Variables that turn the
// library off are obeyed.
func TestVariablesOfTheUser(t *testing.T) {
	t.Parallel()
	m := machine(t, "1G")
	file, folder := filepath.Join(m.Dir, "count"), filepath.Join(m.Dir, "layers")
	place(m, folder, "layer.json", manifest(m, witness))
	for _, c := range []struct {
		name    string
		environ []string
		layer   bool // the counting layer is in the chain too
		charged bool
	}{
		{"nothing", nil, false, true},
		{"an empty VK_LAYER_PATH", []string{"VK_LAYER_PATH="}, false, true},
		{"an empty VK_INSTANCE_LAYERS", []string{"VK_INSTANCE_LAYERS="}, false, true},
		{"VK_LAYER_PATH", []string{"VK_LAYER_PATH=" + folder, "VK_INSTANCE_LAYERS=" + witness}, true, true},
		{"VK_ADD_LAYER_PATH", []string{"VK_ADD_LAYER_PATH=" + folder, "VK_INSTANCE_LAYERS=" + witness}, true, true},
		{"both layers", chain(m, witness, ours), true, true},
		{"the layer turned off", []string{"GPUARB_DISABLE=1"}, false, false},
	} {
		_ = os.Remove(file)
		cmd := run(m, nil, rig.Build(t, "programs/vkprog-device"))
		cmd.Env = append(cmd.Env, append(c.environ, "VKCOUNT="+file)...)
		p := m.Interact(cmd)
		p.Want("instance i", "ok")
		p.Want("device d i", "ok")
		p.Want("alloc a d 5M", "ok")
		if live, _ := counted(file); live != 5*mib && c.layer || live != 0 && !c.layer {
			t.Errorf("%s: the user's layer counts %d bytes", c.name, live)
		}
		if got := used(m, p); got != 5*mib && c.charged || got != 0 && !c.charged {
			t.Errorf("%s: %d bytes are charged", c.name, got)
		}
		p.End()
		idle(m)
	}
}

// TestTurnedOff: a preloaded program without the layer's variable, or with the library turned off,
// behaves as without the library.
func TestTurnedOff(t *testing.T) {
	t.Parallel()
	m := machine(t, "1G")
	for _, environ := range [][]string{
		{installed(m)},
		append(alone(m), "GPUARB_DISABLE=1"),
	} {
		cmd := m.Command(append(m.PreloadEnv(), "GPUARB_MEMORY=1M"), rig.Build(t, "programs/vkprog-link"))
		p := m.Interact(vulkan(m, cmd, environ...))
		p.Want("instance i", "ok")
		p.Want("device d i", "ok")
		p.Want("alloc a d 5M", "ok")
		if s := m.Snapshot(); len(s.Leases) != 0 {
			t.Errorf("%v: %+v", environ, s.Leases)
		}
		p.End()
	}
}

// TestWithoutADaemon: without a daemon a program runs as without the library, except for the limits
// that it declares itself.
func TestWithoutADaemon(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "none", Stopped: true, NoMount: true})
	cmd := m.Command(append(m.PreloadEnv(), "GPUARB_MEMORY=8M"), rig.Build(t, "programs/vkprog-link"))
	p := m.Interact(vulkan(m, cmd, alone(m)...))
	p.Want("instance i", "ok")
	p.Want("device d i", "ok")
	p.Want("alloc a d 8M", "ok")
	p.Want("alloc b d 1", "err -2")
	p.Want("free a", "ok")
	p.Want("alloc b d 1", "ok")
}
