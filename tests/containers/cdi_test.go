package containers

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file reads what `gpuarb cdi generate` writes as an engine does, and starts programs in a root folder that has
// the marker which the device mounts. podman_cdi_full_test.go gives the devices to a real engine.

// spec has every field of the CDI format 0.5.0 that the devices may use. Engines refuse other fields.
type spec struct {
	Version string `json:"cdiVersion"`
	Kind    string `json:"kind"`
	Devices []struct {
		Name  string `json:"name"`
		Edits edits  `json:"containerEdits"`
	} `json:"devices"`
	Edits edits `json:"containerEdits"`
}

type edits struct {
	Env    []string `json:"env"`
	Mounts []struct {
		Host      string   `json:"hostPath"`
		Container string   `json:"containerPath"`
		Options   []string `json:"options"`
	} `json:"mounts"`
	Hooks []struct {
		Name    string   `json:"hookName"`
		Path    string   `json:"path"`
		Args    []string `json:"args"`
		Env     []string `json:"env"`
		Timeout int      `json:"timeout"`
	} `json:"hooks"`
}

func readSpec(t *testing.T, text string) spec {
	t.Helper()
	var s spec
	decoder := json.NewDecoder(bytes.NewReader([]byte(text)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&s); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return s
}

// TestCDIDevices checks the devices: their names and hooks, that every file which they mount is there, and that the
// files say where the library lies in a container.
func TestCDIDevices(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "1G", NoMount: true, Stopped: true})
	i := installed(t, m)
	r := rig.Run(t, m.Command(m.Env(), i.command(), "--socket", m.Socket, "cdi", "generate"))
	if r.Code != 0 || r.Stderr != "" {
		t.Fatalf("%+v", r)
	}
	s := readSpec(t, r.Stdout)
	if s.Version != "0.5.0" || s.Kind != "gpuarb.dev/memory" {
		t.Errorf("the file is of version %q and kind %q", s.Version, s.Kind)
	}
	flags := map[string][]string{"64M": {"--memory", "64M"}, "1G": {"--memory", "1G"}, "80G": {"--memory", "80G"}, "all": {"--memory", "max"}, "annotation": {}}
	for _, d := range s.Devices {
		if len(d.Edits.Hooks) != 2 || len(d.Edits.Mounts) != 0 || len(d.Edits.Env) != 0 {
			t.Fatalf("device %s has %+v", d.Name, d.Edits)
		}
		want, listed := flags[d.Name]
		if !listed {
			want = []string{"--memory", d.Name}
		}
		delete(flags, d.Name)
		open, closing := d.Edits.Hooks[0], d.Edits.Hooks[1]
		if open.Name != "createRuntime" || !slices.Equal(open.Args, append([]string{"gpuarb", "--socket", m.Socket, "job", "open", "--oci"}, append(want, "--until", "idle=10s")...)) {
			t.Errorf("device %s opens by %+v", d.Name, open)
		}
		if closing.Name != "poststop" || !slices.Equal(closing.Args, []string{"gpuarb", "--socket", m.Socket, "job", "close", "--oci"}) {
			t.Errorf("device %s closes by %+v", d.Name, closing)
		}
		if open.Path != i.command() || len(open.Env) == 0 || open.Timeout == 0 || closing.Path != open.Path {
			t.Errorf("device %s runs %+v", d.Name, open)
		}
	}
	if len(flags) != 0 {
		t.Errorf("there is no device %v", flags)
	}
	if !slices.Equal(s.Edits.Env, []string{"LD_PRELOAD=/usr/lib/gpuarb/libgpuarb.so", "GPUARB_VULKAN=1"}) {
		t.Errorf("the environment is %q", s.Edits.Env)
	}
	mounts := map[string]string{}
	for _, mount := range s.Edits.Mounts {
		if !slices.Contains(mount.Options, "ro") || !slices.Contains(mount.Options, "nosuid") {
			t.Errorf("%s is mounted with %q", mount.Container, mount.Options)
		}
		mounts[mount.Container] = mount.Host
	}
	want := map[string]string{
		"/usr/lib/gpuarb":                                i.folder(),
		"/usr/lib/gpuarb/bound":                          filepath.Join(i.folder(), "container"),
		"/run/gpuarb/client":                             filepath.Join(m.Dir, "client"),
		"/etc/ld.so.preload":                             filepath.Join(i.folder(), "container/ld.so.preload"),
		"/etc/vulkan/implicit_layer.d/gpuarb_layer.json": filepath.Join(i.folder(), "container/gpuarb_layer.json"),
	}
	for to, from := range want {
		if mounts[to] != from {
			t.Errorf("%s is mounted from %q, want %q", to, mounts[to], from)
		}
	}
	if len(mounts) != len(want) {
		t.Errorf("%d mounts, want %d", len(mounts), len(want))
	}
	for name, text := range map[string]string{"ld.so.preload": "/usr/lib/gpuarb/libgpuarb.so\n", "gpuarb_layer.json": `"library_path": "/usr/lib/gpuarb/libgpuarb.so"`} {
		if got, err := os.ReadFile(filepath.Join(i.folder(), "container", name)); err != nil || !strings.Contains(string(got), text) {
			t.Errorf("%s holds %q (%v)", name, got, err)
		}
	}
}

// TestCDIFile checks that the file is written as a whole, and that nothing is written if a file of the installation is
// missing: a container that had the loader's list without the library would print an error for each program.
func TestCDIFile(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "1G", NoMount: true, Stopped: true})
	i := installed(t, m)
	path := filepath.Join(m.Dir, "etc/cdi/gpuarb.json")
	generate := func(words ...string) rig.Result {
		return rig.Run(t, m.Command(m.Env(), i.command(), append([]string{"cdi", "generate"}, words...)...))
	}
	if r := generate("--output", path); r.Code != 0 || r.Stdout+r.Stderr != "" {
		t.Fatalf("%+v", r)
	}
	before := inode(t, path)
	held, err := os.Open(path) // so that the number of the first file is not used again
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if r := generate("--output", path); r.Code != 0 {
		t.Fatalf("%+v", r)
	}
	if inode(t, path) == before {
		t.Error("the file was written in place: an engine could read a part of it")
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if hook := readSpec(t, string(text)).Devices[0].Edits.Hooks[0]; !slices.Contains(hook.Args, "/run/gpuarb/gpuarb.sock") {
		t.Errorf("without --socket the hook is %q", hook.Args)
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
		t.Errorf("the folder holds %v (%v)", entries, err)
	}
	if r := generate("--output", path+".txt"); r.Code != 2 || !strings.Contains(r.Stderr, "ends in .json") {
		t.Errorf("another name: %+v", r)
	}
	if r := generate("--socket", "gpuarb.sock"); r.Code != 1 || !strings.Contains(r.Stderr, "not an absolute path") {
		t.Errorf("a relative socket: %+v", r)
	}
	if err := os.Remove(filepath.Join(i.folder(), "container/ld.so.preload")); err != nil {
		t.Fatal(err)
	}
	if r := generate("--output", path); r.Code != 1 || !strings.Contains(r.Stderr, "container/ld.so.preload") || !strings.Contains(r.Stderr, "make install") {
		t.Errorf("without a file: %+v", r)
	}
	if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, text) {
		t.Errorf("a failed command changed the file (%v)", err)
	}
}

// TestInstallReplacesFiles checks that an installation over another one makes new files, because running programs and
// containers have the old ones mapped and mounted. The folders stay, because containers have them mounted.
func TestInstallReplacesFiles(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "1G", NoMount: true, Stopped: true})
	i := installed(t, m)
	names := []string{"libgpuarb.so", "no-exports/libgpuarb.so", "container/ld.so.preload", "container/on-loss-closed", "container/gpuarb_layer.json", "../../bin/gpuarb", "../../bin/gpuarbd"}
	folders := []string{".", "container", "bound"}
	before := map[string]uint64{}
	for _, name := range append(names, folders...) {
		path := filepath.Join(i.folder(), name)
		held, err := os.Open(path) // so that its number is not used again
		if err != nil {
			t.Fatal(err)
		}
		defer held.Close()
		before[name] = inode(t, path)
	}
	i.from(t, filepath.Dir(rig.Build(t, "gpuarb")))
	for name, old := range before {
		if is := inode(t, filepath.Join(i.folder(), name)); (is == old) != slices.Contains(folders, name) {
			t.Errorf("%s has inode %d, and had %d", name, is, old)
		}
	}
}

func inode(t *testing.T, path string) uint64 {
	t.Helper()
	var s unix.Stat_t
	if err := unix.Stat(path, &s); err != nil {
		t.Fatal(err)
	}
	return s.Ino
}

// TestMarkerClosesTheLoss starts programs without a daemon. If the marker lies beside the library, they get no memory,
// whatever GPUARB_ON_LOSS says. Once a daemon has answered, the daemon's on_loss counts.
func TestMarkerClosesTheLoss(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "1G", NoMount: true, Config: "schema_version = 1\n[defaults]\non_loss = \"open\"\n"})
	root := image(t, m)
	place(t, rig.Build(t, "libgpuarb.so"), filepath.Join(root, "usr/lib/gpuarb/libgpuarb.so"))
	if err := os.Mkdir(filepath.Join(root, "simdir"), 0o755); err != nil {
		t.Fatal(err)
	}
	start := func(words ...string) *rig.Program {
		env := append([]string{"PATH=/bin:/usr/bin:/usr/sbin", "SIMCUDA_DIR=/simdir", "SIMCUDA_DEVICES=1G", "LD_LIBRARY_PATH=/usr/lib", "GPUARB_QUIET=1", "LD_PRELOAD=/usr/lib/gpuarb/libgpuarb.so"}, words...)
		return m.Begin(m.Command(os.Environ(), "unshare", append([]string{"--mount", "--propagation", "private", "sh", "-ec", jail, "sh", root, m.Dir, "env", "-i"}, append(env, "chroot", root, "/cudaprog-dlsym")...)...))
	}
	answer := func(want string, words ...string) {
		t.Helper()
		p := start(words...)
		p.Expect("ready")
		p.Want("alloc a 1M", want)
		p.End()
	}
	m.Stop()
	answer("ok")
	place(t, os.DevNull, filepath.Join(root, "usr/lib/gpuarb/bound/on-loss-closed"))
	answer("err 2")
	answer("err 2", "GPUARB_ON_LOSS=open")
	m.Start()
	answer("ok")
	p := start()
	p.Expect("ready")
	p.Want("alloc a 1M", "ok")
	m.Stop()
	p.Want("alloc b 1M", "ok") // the daemon has said that its loss is open
	p.End()
}

// jail makes the machine's driver ($2/sim) and the folder for clients visible in a root folder ($1), and runs the remaining arguments.
const jail = `mount --bind "$2/sim" "$1/simdir"
mkdir -p "$1/run/gpuarb/client"
mount --bind "$2/client" "$1/run/gpuarb/client"
shift 2
exec "$@"`
