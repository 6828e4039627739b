package nri_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8s "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttest "k8s.io/client-go/testing"

	"github.com/gpuarb/gpuarb/kube/nri"
	"github.com/gpuarb/gpuarb/kube/share"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file drives the plug-in as a runtime does, through NRI's own package for runtimes. The daemon, the cgroups and the programs in
// them are real; there are no containers, so that the test itself preloads the library. The oracle is the simulated driver's count.

// runtime is a container runtime with the plug-in connected.
type runtime struct {
	*adaptation.Adaptation
	m      *rig.Machine
	pod    *api.PodSandbox
	stop   func()       // ends the plug-in
	synced atomic.Int32 // plug-ins that the runtime has synchronized
}

// start starts a runtime and connects a plug-in to it. running are the containers that run already.
func start(t *testing.T, m *rig.Machine, p *nri.Plugin, pod *api.PodSandbox, running ...*api.Container) *runtime {
	t.Helper()
	r := &runtime{m: m, pod: pod}
	socket := filepath.Join(m.Dir, "nri.sock")
	synchronize := func(ctx context.Context, call adaptation.SyncCB) error {
		_, err := call(ctx, []*api.PodSandbox{r.pod}, running)
		if err == nil {
			r.synced.Add(1)
		}
		return err
	}
	update := func(context.Context, []*api.ContainerUpdate) ([]*api.ContainerUpdate, error) { return nil, nil }
	var err error
	if r.Adaptation, err = adaptation.New("test", "1", synchronize, update, adaptation.WithSocketPath(socket), adaptation.WithPluginPath(t.TempDir())); err != nil {
		t.Fatal(err)
	}
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Stop)
	p.Sockets, p.Edits, p.Within = []string{m.Socket}, edits(t, m), rig.Patience
	r.connect(t, p)
	return r
}

// connect starts the plug-in and waits until the runtime has synchronized it.
func (r *runtime) connect(t *testing.T, p *nri.Plugin) {
	t.Helper()
	before, ended := r.synced.Load(), make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		ended <- p.Serve(ctx, stub.WithPluginName("gpuarb"), stub.WithPluginIdx("50"), stub.WithSocketPath(filepath.Join(r.m.Dir, "nri.sock")))
	}()
	r.stop = sync.OnceFunc(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(r.stop)
	rig.Eventually(t, "the runtime has the plug-in", func() bool { return r.synced.Load() > before })
}

// edits writes a file like that of `gpuarb cdi generate`, with one mount and one variable. Returns its path.
func edits(t *testing.T, m *rig.Machine) string {
	t.Helper()
	path := filepath.Join(m.Dir, "gpuarb.json")
	text, err := json.Marshal(map[string]any{"cdiVersion": "0.5.0", "kind": "gpuarb.dev/memory", "containerEdits": share.Edits{
		Env:    []string{"LD_PRELOAD=/usr/lib/gpuarb/libgpuarb.so"},
		Mounts: []share.Mount{{Host: m.Dir, Container: "/run/gpuarb/client", Options: []string{"ro", "rbind"}}}}})
	if err == nil {
		err = os.WriteFile(path, text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func machine(t *testing.T) *rig.Machine {
	t.Helper()
	return rig.New(t, rig.Options{Devices: "400M", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"},
		Config: "schema_version = 1\n[[device]]\ncontext_reserve = \"0\"\n"})
}

func pod(annotations map[string]string) *api.PodSandbox {
	return &api.PodSandbox{Id: "sandbox", Name: "train", Uid: "u1", Namespace: "lab", Annotations: annotations}
}

func container(name string, at *rig.Cgroup) *api.Container {
	return &api.Container{Id: "id-" + name, PodSandboxId: "sandbox", Name: name, State: api.ContainerState_CONTAINER_RUNNING,
		Linux: &api.LinuxContainer{CgroupsPath: at.Path}}
}

// begin makes and starts a container, and runs a program in its cgroup.
func (r *runtime) begin(t *testing.T, c *api.Container, at *rig.Cgroup) *rig.Program {
	t.Helper()
	if _, err := r.CreateContainer(t.Context(), &api.CreateContainerRequest{Pod: r.pod, Container: c}); err != nil {
		t.Fatal(err)
	}
	if err := r.StartContainer(t.Context(), &api.StartContainerRequest{Pod: r.pod, Container: c}); err != nil {
		t.Fatal(err)
	}
	return r.m.Interact(at.In(r.m.Command(r.m.PreloadEnv(), rig.Build(r.m.T, "programs/cudaprog-dlsym"))))
}

// holds checks that a program can allocate a number of bytes, and then not one more.
func holds(t *testing.T, p *rig.Program, bytes string) {
	t.Helper()
	p.Want("alloc a "+bytes, "ok")
	p.Want("alloc b 1", "err 2")
}

// TestAnnotationIsHeld: a container gets the library and is held to the annotated bytes, from its first process on. Its neighbour without
// an annotation is left alone. The job ends with the container.
func TestAnnotationIsHeld(t *testing.T) {
	m := machine(t)
	r := start(t, m, &nri.Plugin{Most: share.Unlimited}, pod(map[string]string{share.Annotation + "/main": "64Mi"}))
	pods := m.Cgroup()
	at, beside := m.Below(pods, "main"), m.Below(pods, "free")
	main, free := container("main", at), container("free", beside)
	reply, err := r.CreateContainer(t.Context(), &api.CreateContainerRequest{Pod: r.pod, Container: main})
	if err != nil || len(reply.GetAdjust().GetMounts()) != 1 || len(reply.GetAdjust().GetEnv()) != 1 {
		t.Fatalf("%v, %v", reply, err)
	}
	if reply, err := r.CreateContainer(t.Context(), &api.CreateContainerRequest{Pod: r.pod, Container: free}); err != nil || len(reply.GetAdjust().GetMounts()) != 0 {
		t.Fatalf("the neighbour: %v, %v", reply, err)
	}
	p := r.begin(t, main, at)
	holds(t, p, "64M")
	if got := m.HeldBy(p.PID(), 0).Bytes; got != 64<<20 {
		t.Errorf("the driver counts %d bytes", got)
	}
	if s := m.Snapshot(); len(s.Leases) != 1 || s.Leases[0].JobName != "lab/train/main" {
		t.Errorf("leases: %+v", s.Leases)
	}
	q := r.begin(t, free, beside)
	q.Want("alloc a 200M", "ok")
	p.End()
	if err := r.RemoveContainer(t.Context(), &api.RemoveContainerRequest{Pod: r.pod, Container: main}); err != nil {
		t.Error(err)
	}
	rig.Eventually(t, "the job is closed", func() bool { return len(m.Snapshot().Jobs) <= 1 })
	q.End()
}

// TestWhatLimitsAnAnnotation: the node's maximum and a claim limit an annotation, and never the other way round.
func TestWhatLimitsAnAnnotation(t *testing.T) {
	for name, test := range map[string]struct {
		annotation string
		granted    share.Granted
		most       uint64
		want       uint64 // 0: no budget
	}{
		"nothing":                    {"", share.Granted{}, 10, 0},
		"annotation":                 {"7", share.Granted{}, share.Unlimited, 7},
		"above the node's maximum":   {"7", share.Granted{}, 5, 5},
		"claim":                      {"", share.Granted{Bytes: 9, By: "claim"}, 5, 9},
		"annotation below the claim": {"7", share.Granted{Bytes: 9, By: "claim"}, 5, 7},
		"annotation above the claim": {"70", share.Granted{Bytes: 9, By: "claim"}, share.Unlimited, 9},
	} {
		annotations := map[string]string{}
		if test.annotation != "" {
			annotations[share.Annotation] = test.annotation
		}
		got, has, err := share.Compute(annotations, "main", test.granted, test.most)
		if err != nil || has != (test.want != 0) || got.Bytes != test.want {
			t.Errorf("%s: %v, %v, %v", name, got, has, err)
		}
	}
}

// TestQuantities: Bytes takes whole quantities of bytes with suffixes, fractions and exponents. All other texts are errors. The error is
// short even if the text is long or has a huge exponent.
func TestQuantities(t *testing.T) {
	for text, want := range map[string]uint64{"7": 7, "1.5Gi": 3 << 29, "0.5Ki": 512, "100000000000000Ki": 102400000000000000, "1e3": 1000, "+4k": 4000,
		"2000m": 2, "9223372036854775807": math.MaxInt64, "8Ei": math.MaxInt64} {
		if got, err := share.Bytes(text); got != want || err != nil {
			t.Errorf("%q is %d (%v), want %d", text, got, err, want)
		}
	}
	for _, wrong := range []string{"", "0", "-1", "1.5", "1500m", "four", "1e30", "-9223372036854775809", "9223372036854775808", "1e-999999999", "1e999999999",
		"10000000000000000000e2147483647", "100000000000000000000", "4Gi ", "4 Gi", "4GiB", "٤Gi", "4Gi\n", "0x10", "1_000", "NaN", "Inf", "1e", "\xff", strings.Repeat("9", 250000),
		"1." + strings.Repeat("0", 250000), strings.Repeat("\x00", 250000)} {
		got, err := share.Bytes(wrong)
		if err == nil {
			t.Errorf("%q is %v", wrong, got)
		} else if len(err.Error()) > 400 {
			t.Errorf("the error has %d bytes", len(err.Error()))
		}
	}
}

// TestBadAnnotationKeepsAContainerFromStarting: the error names the pod, the annotation and what is wrong with it.
func TestBadAnnotationKeepsAContainerFromStarting(t *testing.T) {
	m := machine(t)
	r := start(t, m, &nri.Plugin{Most: share.Unlimited}, pod(map[string]string{share.Annotation + "/main": "lots"}))
	_, err := r.CreateContainer(t.Context(), &api.CreateContainerRequest{Pod: r.pod, Container: container("main", m.Cgroup())})
	if err == nil || !strings.Contains(err.Error(), `lab/train/main: annotation memory.gpuarb.dev/main: "lots" is not a quantity`) {
		t.Error(err)
	}
}

// claimed returns a cluster with the pod and its claim. The claim is of another driver, and has bytes of memory. limit is the quantity of gpumem.
func claimed(bytes, limit string) *fake.Clientset {
	claim := "train-gpu-x"
	return fake.NewClientset(
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "train", Namespace: "lab", UID: "u1"},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{
				Limits: corev1.ResourceList{"nvidia.com/gpumem": resource.MustParse(limit)}, Claims: []corev1.ResourceClaim{{Name: "gpu"}}}}}},
			Status: corev1.PodStatus{ResourceClaimStatuses: []corev1.PodResourceClaimStatus{{Name: "gpu", ResourceClaimName: &claim}}}},
		&resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: claim, Namespace: "lab"},
			Status: resourcev1.ResourceClaimStatus{Allocation: &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{
				Results: []resourcev1.DeviceRequestAllocationResult{{Driver: "gpu.nvidia.com", Request: "gpu",
					ConsumedCapacity: map[resourcev1.QualifiedName]resource.Quantity{"memory": resource.MustParse(bytes)}}}}}}})
}

// TestOthersSharesAreHeld: what another driver's claim or resource gave a container is held, and an annotation only lowers it.
func TestOthersSharesAreHeld(t *testing.T) {
	unit, err := share.ParseUnit("nvidia.com/gpumem=1Mi")
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ claim, limit, annotation, want string }{
		"claim":      {"96Mi", "0", "200Mi", "96M"},
		"resource":   {"96Mi", "80", "200Mi", "80M"},
		"annotation": {"96Mi", "80", "32Mi", "32M"},
	} {
		t.Run(name, func(t *testing.T) {
			m := machine(t)
			p := &nri.Plugin{Most: 1, Cluster: &share.Cluster{Client: claimed(test.claim, test.limit), Units: []share.Unit{unit}}}
			r := start(t, m, p, pod(map[string]string{share.Annotation: test.annotation}))
			at := m.Cgroup()
			c := container("main", at)
			c.Env = []string{"NVIDIA_VISIBLE_DEVICES=0"}
			program := r.begin(t, c, at)
			holds(t, program, test.want)
			program.End()
		})
	}
}

// TestBadResourceKeepsAContainerFromStarting: a malformed annotation of another scheduler is an error that names the annotation.
func TestBadResourceKeepsAContainerFromStarting(t *testing.T) {
	unit, err := share.ParseUnit("gpu-memory=1Mi")
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range []string{"lots", "0", "-4", "1.5"} {
		client := claimed("96Mi", "0")
		change(t, client, func(p *corev1.Pod) { p.Annotations = map[string]string{"gpu-memory": wrong} })
		cluster := share.Cluster{Client: client, Units: []share.Unit{unit}}
		if granted, err := cluster.Granted(t.Context(), "lab", "train", "u1", "main"); err == nil || !strings.Contains(err.Error(), "annotation gpu-memory of pod lab/train: \""+wrong) {
			t.Errorf("%q gives %+v, %v", wrong, granted, err)
		}
	}
}

// TestClaimThatIsNotNeeded: if the pod's status says that a claim needs no object, Granted returns zero bytes and no error. As
// long as the status has no entry for the claim, Granted returns an error, which keeps the container from starting.
func TestClaimThatIsNotNeeded(t *testing.T) {
	cluster := func(statuses ...corev1.PodResourceClaimStatus) share.Cluster {
		client := claimed("96Mi", "0")
		change(t, client, func(p *corev1.Pod) { p.Status.ResourceClaimStatuses = statuses })
		return share.Cluster{Client: client}
	}
	needless := cluster(corev1.PodResourceClaimStatus{Name: "gpu"})
	if granted, err := needless.Granted(t.Context(), "lab", "train", "u1", "main"); err != nil || granted.Bytes != 0 {
		t.Errorf("no claim was needed: %+v, %v", granted, err)
	}
	early := cluster(corev1.PodResourceClaimStatus{Name: "other"})
	if granted, err := early.Granted(t.Context(), "lab", "train", "u1", "main"); err == nil || !strings.Contains(err.Error(), `pod lab/train has no claim "gpu" yet`) {
		t.Errorf("no entry yet: %+v, %v", granted, err)
	}
}

// TestExtendedResourceIsHeld: a DRA driver can provide an extended resource. The scheduler then makes a claim that the pod's specification
// does not name. A container is held to the memory of its own requests in that claim. Requests of other containers give it nothing.
func TestExtendedResourceIsHeld(t *testing.T) {
	client := claimed("96Mi", "0")
	change(t, client, func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Claims = nil
		p.Spec.InitContainers = []corev1.Container{{Name: "setup"}}
		p.Status.ResourceClaimStatuses = nil
		p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "train-gpu-x",
			RequestMappings: []corev1.ContainerExtendedResourceRequest{{ContainerName: "setup", ResourceName: "example.com/gpu", RequestName: "init"},
				{ContainerName: "main", ResourceName: "example.com/gpu", RequestName: "gpu"}}}
	})
	cluster := &share.Cluster{Client: client}
	if granted, err := cluster.Granted(t.Context(), "lab", "train", "u1", "setup"); err != nil || granted.Bytes != 0 {
		t.Errorf("the other container: %+v, %v", granted, err)
	}
	m := machine(t)
	r := start(t, m, &nri.Plugin{Most: 1, Cluster: cluster}, pod(nil))
	at := m.Cgroup()
	c := container("main", at)
	c.Env = []string{"NVIDIA_VISIBLE_DEVICES=0"}
	program := r.begin(t, c, at)
	holds(t, program, "96M")
	program.End()
}

// TestTwoRequestsOfOneClaim: a container that names two requests of a claim is held to the larger of their devices. A third request, which
// it does not name, gives it nothing.
func TestTwoRequestsOfOneClaim(t *testing.T) {
	client := claimed("96Mi", "0")
	change(t, client, func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu", Request: "small"}, {Name: "gpu", Request: "large"}}
	})
	claim, err := client.ResourceV1().ResourceClaims("lab").Get(t.Context(), "train-gpu-x", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	claim.Status.Allocation.Devices.Results = nil
	for request, bytes := range map[string]string{"small": "96Mi", "large": "160Mi", "other": "1Gi"} {
		claim.Status.Allocation.Devices.Results = append(claim.Status.Allocation.Devices.Results, resourcev1.DeviceRequestAllocationResult{Driver: "gpu.nvidia.com",
			Request: request, ConsumedCapacity: map[resourcev1.QualifiedName]resource.Quantity{"memory": resource.MustParse(bytes)}})
	}
	if _, err := client.ResourceV1().ResourceClaims("lab").UpdateStatus(t.Context(), claim, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	cluster := &share.Cluster{Client: client}
	if granted, err := cluster.Granted(t.Context(), "lab", "train", "u1", "main"); err != nil || granted.Bytes != 160<<20 {
		t.Errorf("%+v, %v", granted, err)
	}
}

// change edits the pod lab/train on the API server.
func change(t *testing.T, client *fake.Clientset, how func(*corev1.Pod)) {
	t.Helper()
	p, err := client.CoreV1().Pods("lab").Get(t.Context(), "train", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	how(p)
	if _, err := client.CoreV1().Pods("lab").Update(t.Context(), p, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestOwnClaimsAreLeftOut: a claim of gpuarb's own driver gives nothing here, because the hooks of the claim's device open the job.
func TestOwnClaimsAreLeftOut(t *testing.T) {
	client := claimed("96Mi", "0")
	claim, err := client.ResourceV1().ResourceClaims("lab").Get(t.Context(), "train-gpu-x", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	claim.Status.Allocation.Devices.Results[0].Driver = share.Driver
	if _, err := client.ResourceV1().ResourceClaims("lab").Update(t.Context(), claim, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	cluster := share.Cluster{Client: client}
	if granted, err := cluster.Granted(t.Context(), "lab", "train", "u1", "main"); err != nil || granted.Bytes != 0 {
		t.Errorf("%+v, %v", granted, err)
	}
}

// open waits until the daemon has exactly n jobs.
func open(t *testing.T, m *rig.Machine, n int) {
	t.Helper()
	rig.Eventually(t, fmt.Sprintf("%d jobs are open", n), func() bool { return len(m.Snapshot().Jobs) == n })
}

// TestSynchronizeHoldsWhatRuns: a plug-in that connects opens the jobs of containers that run. After it has connected again, a program
// that uses its whole budget still gets nothing more.
func TestSynchronizeHoldsWhatRuns(t *testing.T) {
	m := machine(t)
	at := m.Cgroup()
	c := container("main", at)
	p := &nri.Plugin{Most: share.Unlimited}
	r := start(t, m, p, pod(map[string]string{share.Annotation: "64Mi"}), c)
	open(t, m, 1)
	program := m.Interact(at.In(m.Command(m.PreloadEnv(), rig.Build(t, "programs/cudaprog-dlsym"))))
	holds(t, program, "64M")
	r.stop()
	r.connect(t, p)
	program.Want("alloc b 1", "err 2")
	program.End()
}

// TestChangedMaximum: a plug-in is started again with another --max while a container runs. Programs that start in the container from then
// on are held to the new budget. A second container with the same name in another cgroup is refused, and leaves the job of the first
// container as it is.
func TestChangedMaximum(t *testing.T) {
	m := machine(t)
	pods := m.Cgroup()
	at := m.Below(pods, "main")
	c := container("main", at)
	p := &nri.Plugin{Most: 64 << 20}
	r := start(t, m, p, pod(map[string]string{share.Annotation: "1Gi"}), c)
	open(t, m, 1)
	r.stop()
	p.Most = 32 << 20
	r.connect(t, p)
	rig.Eventually(t, "the budget is lower", func() bool { j := m.Snapshot().Jobs; return len(j) == 1 && j[0].Devices[0].Max == 32<<20 })
	program := m.Interact(at.In(m.Command(m.PreloadEnv(), rig.Build(t, "programs/cudaprog-dlsym"))))
	holds(t, program, "32M")
	other := container("main", m.Below(pods, "other"))
	other.Id = "another"
	if err := r.StartContainer(t.Context(), &api.StartContainerRequest{Pod: r.pod, Container: other}); err == nil || !strings.Contains(err.Error(), "has the name lab/train/main already") {
		t.Errorf("another container with the name: %v", err)
	}
	program.Want("alloc b 1", "err 2")
	program.End()
}

// TestManyContainersRun: fifty containers run when the plug-in connects, and the API server takes 100 ms for each pod that is read. That is
// five seconds, and the runtime waits for two. The plug-in stays connected, and opens all jobs.
func TestManyContainersRun(t *testing.T) {
	const n = 50
	m := machine(t)
	client := claimed("96Mi", "0")
	var running []*api.Container
	pods := m.Cgroup()
	change(t, client, func(p *corev1.Pod) {
		for i := range n {
			name := fmt.Sprint("c", i)
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: name})
			c := container(name, m.Below(pods, name))
			c.Env = []string{"NVIDIA_VISIBLE_DEVICES=0"}
			running = append(running, c)
		}
	})
	client.PrependReactor("get", "pods", func(clienttest.Action) (bool, k8s.Object, error) {
		time.Sleep(100 * time.Millisecond)
		return false, nil, nil
	})
	start(t, m, &nri.Plugin{Most: share.Unlimited, Cluster: &share.Cluster{Client: client}}, pod(map[string]string{share.Annotation: "1Mi"}), running...)
	open(t, m, n)
}

// TestRuntimeClosesTheConnection: an answer takes longer than the runtime waits, so that the runtime closes the connection and starts the
// container without a budget. The plug-in connects again, and the container is held from then on.
func TestRuntimeClosesTheConnection(t *testing.T) {
	m := machine(t)
	client := claimed("96Mi", "0")
	at := m.Cgroup()
	c := container("main", at)
	c.Env = []string{"NVIDIA_VISIBLE_DEVICES=0"}
	change(t, client, func(p *corev1.Pod) { p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "main"}) })
	hangs, over := atomic.Bool{}, make(chan struct{})
	client.PrependReactor("get", "pods", func(clienttest.Action) (bool, k8s.Object, error) {
		if hangs.Load() {
			<-over
		}
		return false, nil, nil
	})
	r := start(t, m, &nri.Plugin{Most: share.Unlimited, Cluster: &share.Cluster{Client: client}}, pod(map[string]string{share.Annotation: "64Mi"}), c)
	open(t, m, 1)
	if err := r.RemoveContainer(t.Context(), &api.RemoveContainerRequest{Pod: r.pod, Container: c}); err != nil {
		t.Fatal(err)
	}
	open(t, m, 0)
	hangs.Store(true)
	before := r.synced.Load()
	if err := r.StartContainer(t.Context(), &api.StartContainerRequest{Pod: r.pod, Container: c}); err != nil {
		t.Logf("the runtime says %v", err)
	}
	hangs.Store(false)
	close(over)
	rig.Eventually(t, "the plug-in is connected again", func() bool { return r.synced.Load() > before })
	open(t, m, 1)
}

// TestDaemonComesLater: two containers run, and the daemon is away when the plug-in connects. One container ends before the daemon is
// started. Then only the job of the container that still runs is opened.
func TestDaemonComesLater(t *testing.T) {
	m := machine(t)
	pods := m.Cgroup()
	stays, ends := container("stays", m.Below(pods, "stays")), container("ends", m.Below(pods, "ends"))
	m.Stop()
	r := start(t, m, &nri.Plugin{Most: share.Unlimited}, pod(map[string]string{share.Annotation: "64Mi"}), stays, ends)
	if err := r.RemoveContainer(t.Context(), &api.RemoveContainerRequest{Pod: r.pod, Container: ends}); err != nil {
		t.Error(err)
	}
	m.Start()
	open(t, m, 1)
	if j := m.Snapshot().Jobs[0]; j.Name != "lab/train/stays" {
		t.Errorf("the job is %q", j.Name)
	}
}

// TestNoDaemonKeepsContainersFromStarting: while the daemon is away, a container without a budget starts, and a container with a budget is
// refused.
func TestNoDaemonKeepsContainersFromStarting(t *testing.T) {
	m := machine(t)
	r := start(t, m, &nri.Plugin{Most: share.Unlimited}, pod(map[string]string{share.Annotation + "/main": "64Mi"}))
	pods := m.Cgroup()
	m.Stop()
	for name, starts := range map[string]bool{"main": false, "free": true} {
		c := container(name, m.Below(pods, name))
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		err := r.StartContainer(ctx, &api.StartContainerRequest{Pod: r.pod, Container: c})
		stop()
		if (err == nil) != starts || err != nil && !strings.Contains(err.Error(), "cannot start lab/train/main") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
