package dra_test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	health "k8s.io/kubelet/pkg/apis/dra-health/v1"

	"github.com/gpuarb/gpuarb/kube/share"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file calls the DRA driver through its sockets, as the kubelet does. How much memory programs hold is read from the counters of the
// simulated GPU driver. node_test.go has the node.

const mib = 1 << 20

// holds checks that the program p can allocate size MiB on a GPU, and that its next allocation of one byte fails.
func holds(t *testing.T, n *node, p *rig.Program, device, size int) {
	t.Helper()
	p.Want(fmt.Sprintf("primary gpu%d %d", device, device), "ok")
	p.Want(fmt.Sprintf("alloc a%d %dM", device, size), "ok")
	p.Want(fmt.Sprintf("alloc b%d 1", device), "err 2")
	if got := n.HeldBy(p.PID(), device).Bytes; got != uint64(size)*mib {
		t.Errorf("the driver counts %d bytes of GPU %d, want %d MiB", got, device, size)
	}
}

// TestOffer: the driver offers the memory of each GPU without the reserve and without one context for each share. While the daemon is
// away, each GPU has a taint.
func TestOffer(t *testing.T) {
	n := newNode(t, "400M,1G", "--expected-shares", "4", "--max", "512Mi")
	n.offered()
	for i, d := range n.api.devices() {
		room := map[int64]int64{0: 400 - 8 - 4*4, 1: 1024 - 8 - 4*4}[*d.Attributes["index"].IntValue] * mib
		memory := d.Capacity["memory"]
		if memory.Value.Value() != room || memory.RequestPolicy.ValidRange.Step.Value() != 1 || memory.RequestPolicy.ValidRange.Max.Value() != min(room, 512*mib) {
			t.Errorf("GPU %d: %s, %+v, want %d", i, memory.Value.String(), memory.RequestPolicy, room)
		}
		slots, streams := d.Capacity["slots"], d.Capacity["streams"]
		if slots.Value.Value() != 4 || slots.RequestPolicy.Default.Value() != 1 || streams.Value.Value() != 4*256 {
			t.Errorf("GPU %d: %s slots, %s streams", i, slots.Value.String(), streams.Value.String())
		}
		if !*d.AllowMultipleAllocations || len(d.Taints) != 0 || !strings.HasPrefix(*d.Attributes["uuid"].StringValue, "GPU-") {
			t.Errorf("GPU %d: %+v", i, d)
		}
	}
	tainted := func() (count int) {
		for _, d := range n.api.devices() {
			count += len(d.Taints)
		}
		return count
	}
	n.Stop()
	rig.Eventually(t, "the GPUs are tainted", func() bool { return tainted() == 2 })
	n.Start()
	rig.Eventually(t, "the GPUs are offered again", func() bool { return tainted() == 0 && len(n.api.devices()) == 2 })
}

// TestOfferNamesEachSmallGPU: the driver's log names each GPU that is too small for the expected shares. The other GPUs are offered.
func TestOfferNamesEachSmallGPU(t *testing.T) {
	n := newNode(t, "300M,2G,350M", "--expected-shares", "100")
	rig.Eventually(t, "the large GPU is offered", func() bool { return len(n.api.devices()) == 1 })
	if index := *n.api.devices()[0].Attributes["index"].IntValue; index != 1 {
		t.Errorf("GPU %d is offered", index)
	}
	for _, i := range []int{0, 2} {
		if says := fmt.Sprintf("GPU %s has %d bytes", n.Snapshot().Devices[i].UUID, n.Snapshot().Devices[i].Total); !strings.Contains(n.driver.Stderr(), says) {
			t.Errorf("the driver does not say %q:\n%s", says, n.driver.Stderr())
		}
	}
}

// TestHealth: the driver reports to the kubelet that the GPU is healthy, and that its health is unknown while the daemon is away.
func TestHealth(t *testing.T) {
	n := newNode(t, "400M")
	n.offered()
	stream, err := health.NewDRAResourceHealthClient(n.conn).NodeWatchResources(t.Context(), &health.NodeWatchResourcesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	hears := func(want health.HealthStatus, says string) {
		t.Helper()
		for {
			r, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Devices) == 1 && r.Devices[0].Health == want && strings.Contains(r.Devices[0].Message, says) {
				return
			}
		}
	}
	hears(health.HealthStatus_HEALTHY, "")
	n.Stop()
	hears(health.HealthStatus_UNKNOWN, "gpuarbd on this node")
}

// TestClaimIsHeld: the consumed memory of a claim is the budget of its container, also after restarts of the driver and of the daemon. The
// job is closed when the container ends. The CDI file is removed when the claim is unprepared.
func TestClaimIsHeld(t *testing.T) {
	n := newNode(t, "400M")
	gpu := n.offered()[0]
	claim := n.allocate("train", memoryOf("gpu", gpu, "64Mi"))
	devices := n.prepare(claim)
	if len(devices) != 1 || devices[0].GetShareId() != "share-train-0" || devices[0].DeviceName != gpu || len(devices[0].CdiDeviceIds) != 2 ||
		!strings.HasPrefix(devices[0].CdiDeviceIds[1], "example.com/gpu=GPU-") {
		t.Fatalf("devices: %v", devices)
	}
	c := n.container("c1", n.Cgroup(), devices)
	if err := c.create(); err != nil {
		t.Fatal(err)
	}
	p := c.program()
	holds(t, n, p, 0, 64)
	if s := n.Snapshot(); len(s.Leases) != 1 || s.Leases[0].JobName != "lab/train" {
		t.Errorf("leases: %+v", s.Leases)
	}
	n.kill()
	n.start()
	n.Kill()
	n.Start()
	rig.Eventually(t, "the session is resumed", func() bool { return len(n.Snapshot().Leases) == 1 })
	if again := n.prepare(claim); len(again) != 1 || again[0].CdiDeviceIds[0] != devices[0].CdiDeviceIds[0] {
		t.Errorf("devices after a restart: %v", again)
	}
	p.Want("alloc b 1", "err 2")
	p.End()
	c.end()
	rig.Eventually(t, "the job is closed", func() bool { return len(n.Snapshot().Jobs) == 0 })
	n.unprepare(claim)
	n.unprepare(claim)
	n.driver.Signal(syscall.SIGTERM)
	if code := n.driver.Wait(); code != 0 {
		t.Errorf("after SIGTERM the driver ends with %d", code)
	}
	if left := n.files(); len(left) != 0 {
		t.Errorf("files are left: %q", left)
	}
}

// TestSharesOfTwoGPUs: a claim has a separate budget on each of its GPUs. Two shares of the same GPU add up. The container gets no memory
// of a third GPU.
func TestSharesOfTwoGPUs(t *testing.T) {
	n := newNode(t, "400M,400M,400M")
	gpus := n.offered()
	few := memoryOf("b", gpus[1], "32Mi")
	few.capacity["streams"] = resource.MustParse("3")
	devices := n.prepare(n.allocate("train", memoryOf("a", gpus[0], "64Mi"), few, memoryOf("c/first", gpus[1], "8Mi")))
	if len(devices) != 3 || devices[2].RequestNames[0] != "c" {
		t.Fatalf("devices: %v", devices)
	}
	c := n.container("c1", n.Cgroup(), devices[1:2])
	for range 2 { // a runtime may run the hooks again
		if err := c.create(); err != nil {
			t.Fatal(err)
		}
	}
	p := c.program()
	holds(t, n, p, 0, 64)
	holds(t, n, p, 1, 40)
	if answer := p.Ask("primary gpu2 2"); answer == "ok" {
		p.Want("alloc c 1", "err 2")
	}
	if s := n.Snapshot(); len(s.Jobs) != 1 || s.Jobs[0].StreamsMax != 3 {
		t.Errorf("jobs: %+v", s.Jobs)
	}
	p.End()
	c.end()
}

// TestSixtyFourGPUs: a node with 64 GPUs, the most that a daemon manages, offers all of them. A claim of 32 GPUs is held to its share of each.
// A claim of 33 GPUs is refused, because a job can use 32.
func TestSixtyFourGPUs(t *testing.T) {
	n := newNode(t, strings.TrimSuffix(strings.Repeat("200M,", 64), ","))
	gpus := n.offered()
	if len(gpus) != 64 {
		t.Fatalf("%d GPUs are offered", len(gpus))
	}
	var parts []part
	for i, gpu := range gpus[31:] {
		parts = append(parts, memoryOf(fmt.Sprint("r", i), gpu, fmt.Sprint(i+10, "Mi")))
	}
	if _, err := n.tryPrepare(n.allocate("many", parts...)); err == nil || !strings.Contains(err.Error(), "claim lab/many: it has 33 GPUs, and a job can use at most 32") {
		t.Errorf("33 GPUs: %v", err)
	}
	c := n.container("c1", n.Cgroup(), n.prepare(n.allocate("train", parts[1:]...)))
	if err := c.create(); err != nil {
		t.Fatal(err)
	}
	var visible []string // GPUs of the claim: the vendor's CDI devices make only these visible
	for i := range 32 {
		visible = append(visible, fmt.Sprint(32+i))
	}
	env := append(n.PreloadEnv(), "CUDA_VISIBLE_DEVICES="+strings.Join(visible, ","))
	p := n.Interact(c.at.In(n.Command(env, rig.Build(t, "programs/cudaprog-dlsym"))))
	for _, i := range []int{0, 16, 31} {
		p.Want(fmt.Sprintf("primary gpu%d %d", i, i), "ok")
		p.Want(fmt.Sprintf("alloc a%d %dM", i, i+11), "ok")
		p.Want(fmt.Sprintf("alloc b%d 1", i), "err 2")
		if got := n.HeldBy(p.PID(), 32+i).Bytes; got != uint64(i+11)*mib {
			t.Errorf("the driver counts %d bytes of GPU %d, want %d MiB", got, 32+i, i+11)
		}
	}
	p.End()
	c.end()
}

// TestOneContainerAtATime: while a container with a claim runs, the hooks of a second container with the claim fail, so that a runtime
// does not create it. The hooks of a container with two claims fail too.
func TestOneContainerAtATime(t *testing.T) {
	n := newNode(t, "400M")
	gpu := n.offered()[0]
	shared := n.prepare(n.allocate("shared", memoryOf("gpu", gpu, "64Mi")))
	other := n.prepare(n.allocate("other", memoryOf("gpu", gpu, "64Mi")))
	pods := n.Cgroup()
	first, second := n.container("c1", n.Below(pods, "c1"), shared), n.container("c2", n.Below(pods, "c2"), shared)
	if err := first.create(); err != nil {
		t.Fatal(err)
	}
	if err := second.create(); err == nil || !strings.Contains(err.Error(), "has the name lab/shared already") {
		t.Errorf("the second container: %v", err)
	}
	p := first.program()
	holds(t, n, p, 0, 64)
	p.End()
	first.end()
	if err := second.create(); err != nil {
		t.Errorf("after the first container: %v", err)
	}
	second.end()
	both := n.container("c3", n.Below(pods, "c3"), append(shared, other...))
	if err := both.create(); err == nil || !strings.Contains(err.Error(), "container c3 has the job lab/shared already: give a container one device of gpuarb, or one claim") {
		t.Errorf("two claims: %v", err)
	}
	both.end()
}

// TestRefusedClaims: the driver refuses to prepare a claim that it cannot hold. The error has the reason, and there is no CDI file.
func TestRefusedClaims(t *testing.T) {
	n := newNode(t, "400M")
	gpu := n.offered()[0]
	admin := n.allocate("admin", memoryOf("gpu", gpu, "1Mi"))
	admin.Status.Allocation.Devices.Results[0].AdminAccess = new(true)
	foreign := n.allocate("foreign", memoryOf("gpu", gpu, "1Mi"))
	foreign.Status.Allocation.Devices.Results[0].Driver = "gpu.nvidia.com"
	for name, test := range map[string]struct {
		claim *resourcev1.ResourceClaim
		says  string
	}{
		"no bytes":           {n.allocate("none", memoryOf("gpu", gpu, "0")), "consumes 0 of memory"},
		"below zero":         {n.allocate("minus", memoryOf("gpu", gpu, "-1")), "consumes -1 of memory"},
		"nothing said":       {n.allocate("old", part{"gpu", gpu, nil}), "DRAConsumableCapacity"},
		"more than the card": {n.allocate("large", memoryOf("gpu", gpu, "401Mi")), "which has 419430400"},
		"more in two shares": {n.allocate("twice", memoryOf("gpu", gpu, "300Mi"), memoryOf("more", gpu, "300Mi")), "which has 419430400"},
		"far too much":       {n.allocate("huge", memoryOf("gpu", gpu, "9223372036854775807"), memoryOf("more", gpu, "9223372036854775807")), "which has 419430400"},
		"unknown device":     {n.allocate("gone", memoryOf("gpu", "gpu-removed", "1Mi")), "the node has no GPU gpu-removed"},
		"admin access":       {admin, "adminAccess"},
		"another driver's":   {foreign, "no device of " + share.Driver},
	} {
		if _, err := n.tryPrepare(test.claim); err == nil || !strings.Contains(err.Error(), test.says) || !strings.Contains(err.Error(), "claim lab/"+test.claim.Name) {
			t.Errorf("%s: %v", name, err)
		}
		if n.find("gpuarb.dev/claim="+string(test.claim.UID)) != nil {
			t.Errorf("%s: there is a file", name)
		}
	}
	replaced := n.allocate("replaced", memoryOf("gpu", gpu, "1Mi"))
	old := replaced.DeepCopy()
	old.UID = types.UID("old")
	if _, err := n.tryPrepare(old); err == nil || !strings.Contains(err.Error(), "got replaced") {
		t.Errorf("a replaced claim: %v", err)
	}
	n.Stop()
	if _, err := n.tryPrepare(replaced); err == nil || !strings.Contains(err.Error(), "claim lab/replaced: gpuarbd on this node") {
		t.Errorf("without a daemon: %v", err)
	}
	n.Start()
	n.prepare(replaced)
}

// TestFiftyClaims: fifty claims are prepared at the same time, and each gets a CDI device with its own budget. Then all are unprepared at
// the same time.
func TestFiftyClaims(t *testing.T) {
	n := newNode(t, "400M")
	gpu := n.offered()[0]
	var claims [50]*resourcev1.ResourceClaim
	for i := range claims {
		claims[i] = n.allocate(fmt.Sprint("c", i), memoryOf("gpu", gpu, fmt.Sprint(i+1, "Mi")))
	}
	together := func(do func(*resourcev1.ResourceClaim) error) {
		t.Helper()
		var all sync.WaitGroup
		for _, claim := range claims {
			all.Go(func() {
				if err := do(claim); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
	together(func(claim *resourcev1.ResourceClaim) error {
		_, err := n.tryPrepare(claim)
		return err
	})
	for i, claim := range claims {
		d := n.find("gpuarb.dev/claim=" + string(claim.UID))
		if d == nil || !strings.Contains(strings.Join(d.Edits.Hooks[0].Args, " "), fmt.Sprintf(" --memory %d ", (i+1)*mib)) {
			t.Errorf("claim %d has %+v", i, d)
		}
	}
	together(n.tryUnprepare)
	if left := n.files(); len(left) != 0 {
		t.Errorf("files are left: %q", left)
	}
}

// TestAbsentAPIServer: a driver that starts while the API server does not answer says so. When the API server is there, the driver says that
// too.
func TestAbsentAPIServer(t *testing.T) {
	n := newNode(t, "400M")
	n.kill()
	absent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	later := &apiServer{url: "http://" + absent.Addr().String()}
	absent.Close()
	n.flags = append(n.flags, "--kubeconfig", later.kubeconfig(t, t.TempDir()))
	driver := n.Begin(n.Command(n.Env(), rig.Build(t, "kube/gpuarb-dra"), n.flags...))
	says := func(want string) {
		t.Helper()
		rig.Eventually(t, "the driver says: "+want, func() bool { return strings.Count(driver.Stderr(), want) == 1 })
	}
	says("the API server does not answer, so that no GPU is offered yet: ")
	there, err := net.Listen("tcp", absent.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) })}
	defer server.Close()
	go func() { _ = server.Serve(there) }()
	says("the API server answers")
	driver.Signal(syscall.SIGTERM)
	driver.Wait()
}

// TestKilledDriver: the driver is killed while it prepares and unprepares a claim. Then each CDI file that a runtime reads is complete,
// and the next attempt of the kubelet succeeds.
func TestKilledDriver(t *testing.T) {
	n := newNode(t, "400M")
	gpu := n.offered()[0]
	claim := n.allocate("train", memoryOf("gpu", gpu, "64Mi"))
	// A kill between two steps, or a loss of power, leaves such files.
	for name, text := range map[string]string{"gpuarb.dev-claim-uid-train.json.new": `{"cdiVersion"`, "gpuarb.dev-claim-uid-train.json": ""} {
		if err := os.WriteFile(filepath.Join(n.path("cdi"), name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if n.prepare(claim); n.find("gpuarb.dev/claim="+string(claim.UID)) == nil {
		t.Errorf("files: %q", n.files())
	}
	n.unprepare(claim)
	for round := range 12 {
		stop, ended := make(chan bool), make(chan bool)
		go func() { // stands for the kubelet, which repeats its calls
			defer close(ended)
			for {
				_, err := n.tryPrepare(claim)
				err = errors.Join(err, n.tryUnprepare(claim))
				select {
				case <-stop:
					return
				default:
				}
				if err != nil && n.t.Context().Err() != nil {
					return
				}
			}
		}()
		rig.Eventually(t, "some calls are made", func() bool { return len(n.files()) == round%2 })
		n.kill()
		close(stop)
		<-ended
		n.find("gpuarb.dev/claim=" + string(claim.UID)) // fails the test if a file is incomplete
		n.conn.Close()
		n.start()
		if n.prepare(claim); n.find("gpuarb.dev/claim="+string(claim.UID)) == nil || len(n.files()) != 1 {
			t.Fatalf("round %d: files after a repeated prepare: %q", round, n.files())
		}
		n.unprepare(claim)
		if left := n.files(); len(left) != 0 {
			t.Fatalf("round %d: files are left: %q", round, left)
		}
	}
}
