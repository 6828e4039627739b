package dra_test

// This file has the node of the tests: a daemon, the driver in a process of its own, and simulations of the kubelet and of the container
// runtime. The simulated kubelet speaks gRPC to the driver's sockets. The simulated runtime reads the CDI files and runs their hooks. There
// are no containers: the test itself preloads the library into programs, which run in real cgroups.

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	dra "k8s.io/kubelet/pkg/apis/dra/v1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/gpuarb/gpuarb/kube/share"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// node is a machine with a daemon, a running driver and a simulated API server.
type node struct {
	*rig.Machine
	t       *testing.T
	api     *apiServer
	flags   []string
	driver  *rig.Program
	kubelet dra.DRAPluginClient
	conn    *grpc.ClientConn
}

// newNode makes a node, and starts its driver with further flags. devices lists the memory sizes of the node's GPUs, such as "400M,1G".
// Each GPU has a reserve of 8 MiB, and 4 MiB for each context.
func newNode(t *testing.T, devices string, flags ...string) *node {
	t.Helper()
	m := rig.New(t, rig.Options{Devices: devices, NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"},
		Config: "schema_version = 1\n[[device]]\nreserve = \"8M\"\ncontext_reserve = \"4M\"\n"})
	n := &node{Machine: m, t: t, api: newAPIServer(t)}
	n.flags = append([]string{"--socket", m.Socket, "--node-name", nodeName, "--kubeconfig", n.api.kubeconfig(t, m.Dir), "--cdi", n.generate(),
		"--cdi-dir", n.path("cdi"), "--kubelet-dir", n.path("kubelet"), "--gpu", "example.com/gpu={uuid}"}, flags...)
	n.start()
	return n
}

func (n *node) path(name string) string { return filepath.Join(n.Dir, name) }

// generate puts the library into the node's folder, runs `gpuarb cdi generate` for it, and returns the path of the written file.
func (n *node) generate() string {
	n.t.Helper()
	library := n.path("lib/libgpuarb.so")
	code, err := os.ReadFile(rig.Build(n.t, "libgpuarb.so"))
	if err == nil {
		err = os.MkdirAll(n.path("lib/container"), 0o755)
	}
	if err == nil {
		err = os.WriteFile(library, code, 0o755)
	}
	for _, name := range []string{"ld.so.preload", "on-loss-closed", "gpuarb_layer.json"} {
		if err == nil {
			err = os.WriteFile(filepath.Join(n.path("lib/container"), name), nil, 0o644)
		}
	}
	if err != nil {
		n.t.Fatal(err)
	}
	file := n.path("gpuarb.json")
	r := rig.Run(n.t, n.Command(append(n.Env(), "GPUARB_LIB="+library), rig.Build(n.t, "gpuarb"), "--socket", n.Socket, "cdi", "generate", "--output", file))
	if r.Code != 0 {
		n.t.Fatalf("%+v", r)
	}
	return file
}

// start starts the driver, waits until its registration socket answers, and connects to it as the kubelet does.
func (n *node) start() {
	n.t.Helper()
	driver := n.Begin(n.Command(n.Env(), rig.Build(n.t, "kube/gpuarb-dra"), n.flags...))
	n.driver = driver
	n.t.Cleanup(func() {
		if n.t.Failed() {
			n.t.Logf("the driver says: %s", driver.Stderr())
		}
	})
	var info *registration.PluginInfo
	rig.Eventually(n.t, "the driver registers", func() bool {
		conn := dial(n.t, n.path("kubelet/plugins_registry/"+share.Driver+"-reg.sock"))
		defer conn.Close()
		var err error
		info, err = registration.NewRegistrationClient(conn).GetInfo(n.t.Context(), &registration.InfoRequest{})
		return err == nil
	})
	if info.Type != registration.DRAPlugin || info.Name != share.Driver || !slices.Contains(info.SupportedVersions, dra.DRAPluginService) {
		n.t.Fatalf("the driver registers as %v", info)
	}
	n.conn = dial(n.t, info.Endpoint)
	n.t.Cleanup(func() { n.conn.Close() })
	n.kubelet = dra.NewDRAPluginClient(n.conn)
}

func dial(t *testing.T, path string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// kill ends the driver with SIGKILL.
func (n *node) kill() {
	n.t.Helper()
	n.driver.Signal(syscall.SIGKILL)
	n.driver.Wait()
}

// offered waits until the driver offers GPUs, and returns the names of their DRA devices in the order of the GPUs' indices.
func (n *node) offered() (names []string) {
	n.t.Helper()
	rig.Eventually(n.t, "the GPUs are offered", func() bool { return len(n.api.devices()) > 0 })
	names = make([]string, len(n.api.devices()))
	for _, d := range n.api.devices() {
		names[*d.Attributes["index"].IntValue] = d.Name
	}
	return names
}

// part is the share of a device that the simulated scheduler gave to a request of a claim.
type part struct {
	request, device string
	capacity        map[resourcev1.QualifiedName]resource.Quantity
}

// memoryOf returns a share with an amount of memory, such as "64Mi".
func memoryOf(request, device, size string) part {
	return part{request, device, map[resourcev1.QualifiedName]resource.Quantity{"memory": resource.MustParse(size)}}
}

// allocate puts a claim into the API server, with the allocation that a scheduler would write for the parts.
func (n *node) allocate(name string, parts ...part) *resourcev1.ResourceClaim {
	claim := &resourcev1.ResourceClaim{TypeMeta: metav1.TypeMeta{APIVersion: resourcev1.SchemeGroupVersion.String(), Kind: "ResourceClaim"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: name, UID: types.UID("uid-" + name)}, Status: resourcev1.ResourceClaimStatus{Allocation: &resourcev1.AllocationResult{}}}
	results := &claim.Status.Allocation.Devices.Results
	for i, p := range parts {
		*results = append(*results, resourcev1.DeviceRequestAllocationResult{Driver: share.Driver, Pool: nodeName, Request: p.request, Device: p.device,
			ShareID: new(types.UID(fmt.Sprintf("share-%s-%d", name, i))), ConsumedCapacity: p.capacity})
	}
	n.api.set(claim)
	return claim
}

func ask(claim *resourcev1.ResourceClaim) []*dra.Claim {
	return []*dra.Claim{{Namespace: claim.Namespace, Name: claim.Name, Uid: string(claim.UID)}}
}

// tryPrepare asks the driver to prepare a claim, and returns the claim's devices, or the error in the driver's answer.
func (n *node) tryPrepare(claim *resourcev1.ResourceClaim) ([]*dra.Device, error) {
	reply, err := n.kubelet.NodePrepareResources(n.t.Context(), &dra.NodePrepareResourcesRequest{Claims: ask(claim)})
	if err != nil {
		return nil, err
	}
	one := reply.Claims[string(claim.UID)]
	if one.GetError() != "" {
		return nil, fmt.Errorf("%s", one.GetError())
	}
	return one.GetDevices(), nil
}

func (n *node) prepare(claim *resourcev1.ResourceClaim) []*dra.Device {
	n.t.Helper()
	devices, err := n.tryPrepare(claim)
	if err != nil {
		n.t.Fatal(err)
	}
	return devices
}

func (n *node) tryUnprepare(claim *resourcev1.ResourceClaim) error {
	reply, err := n.kubelet.NodeUnprepareResources(n.t.Context(), &dra.NodeUnprepareResourcesRequest{Claims: ask(claim)})
	if err != nil {
		return err
	}
	if text := reply.Claims[string(claim.UID)].GetError(); text != "" {
		return fmt.Errorf("%s", text)
	}
	return nil
}

func (n *node) unprepare(claim *resourcev1.ResourceClaim) {
	n.t.Helper()
	if err := n.tryUnprepare(claim); err != nil {
		n.t.Fatal(err)
	}
}

// files returns the names of all files in the folder for the CDI files of claims.
func (n *node) files() (names []string) {
	n.t.Helper()
	entries, err := os.ReadDir(n.path("cdi"))
	if err != nil {
		n.t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// find returns the CDI device with the name id, such as gpuarb.dev/claim=UID, from the files that a runtime reads; nil: no file has it. An
// incomplete file fails the test.
func (n *node) find(id string) *share.Device {
	n.t.Helper()
	kind, name, _ := strings.Cut(id, "=")
	for _, file := range n.files() {
		if filepath.Ext(file) != ".json" {
			continue
		}
		var spec share.Spec
		text, err := os.ReadFile(filepath.Join(n.path("cdi"), file))
		if err == nil {
			err = json.Unmarshal(text, &spec)
		}
		if err != nil {
			n.t.Fatalf("a runtime reads %s: %v", file, err)
		}
		for i, d := range spec.Devices {
			if spec.Kind == kind && d.Name == name && len(spec.Edits.Mounts) == 5 && len(spec.Edits.Env) > 0 {
				return &spec.Devices[i]
			}
		}
	}
	return nil
}

// container is a simulated container: a cgroup, a first process, and the hooks of the container's CDI devices.
type container struct {
	n     *node
	id    string
	at    *rig.Cgroup
	first *rig.Program // sleeps; it stands for the container's first process
	hooks []share.Hook
}

// container returns a container in the cgroup at. devices are what the driver told the kubelet. The container gets each CDI device once,
// as a runtime gives it. Its hooks have not run yet.
func (n *node) container(id string, at *rig.Cgroup, devices []*dra.Device) *container {
	n.t.Helper()
	c := &container{n: n, id: id, at: at}
	done := map[string]bool{}
	for _, d := range devices {
		for _, name := range d.CdiDeviceIds {
			if done[name] || !strings.HasPrefix(name, share.Kind) {
				continue
			}
			done[name] = true
			device := n.find(name)
			if device == nil {
				n.t.Fatalf("no file has the device %s: %q", name, n.files())
			}
			c.hooks = append(c.hooks, device.Edits.Hooks...)
		}
	}
	c.first = n.Begin(at.In(n.Command(n.Env(), "sleep", "600")))
	rig.Eventually(n.t, "the first process is in the container's cgroup", func() bool {
		procs, err := os.ReadFile(at.Procs())
		return err == nil && slices.Contains(strings.Fields(string(procs)), fmt.Sprint(c.first.Process()))
	})
	return c
}

// run runs the hooks with the name when, such as "poststop", and returns the first failure.
func (c *container) run(when string, pid int) error {
	c.n.t.Helper()
	for _, h := range c.hooks {
		if h.Name != when {
			continue
		}
		cmd := c.n.Command(h.Env, h.Path, h.Args[1:]...)
		cmd.Stdin = strings.NewReader(fmt.Sprintf(`{"ociVersion":"1.0.2","id":%q,"pid":%d}`, c.id, pid))
		if r := rig.Run(c.n.t, cmd); r.Code != 0 {
			return fmt.Errorf("hook %q: %d, %s%s", h.Args, r.Code, r.Stdout, r.Stderr)
		}
	}
	return nil
}

// create runs the hooks that a runtime runs before the container's first process.
func (c *container) create() error { c.n.t.Helper(); return c.run("createRuntime", c.first.Process()) }

// end kills the first process, and runs the hooks that a runtime runs after the end of a container.
func (c *container) end() {
	c.n.t.Helper()
	c.first.Signal(syscall.SIGKILL)
	c.first.Wait()
	if err := c.run("poststop", 0); err != nil {
		c.n.t.Error(err)
	}
}

// program starts a CUDA program in the container's cgroup, with the library preloaded.
func (c *container) program() *rig.Program {
	c.n.t.Helper()
	return c.n.Interact(c.at.In(c.n.Command(c.n.PreloadEnv(), rig.Build(c.n.t, "programs/cudaprog-dlsym"))))
}
