package nri_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
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
	"k8s.io/client-go/kubernetes/fake"

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
	sync := func(ctx context.Context, call adaptation.SyncCB) error {
		_, err := call(ctx, []*api.PodSandbox{r.pod}, running)
		if err == nil {
			r.synced.Add(1)
		}
		return err
	}
	update := func(context.Context, []*api.ContainerUpdate) ([]*api.ContainerUpdate, error) { return nil, nil }
	var err error
	if r.Adaptation, err = adaptation.New("test", "1", sync, update, adaptation.WithSocketPath(socket), adaptation.WithPluginPath(t.TempDir())); err != nil {
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
	s, err := stub.New(p, stub.WithPluginName("gpuarb"), stub.WithPluginIdx("50"), stub.WithSocketPath(filepath.Join(r.m.Dir, "nri.sock")))
	if err != nil {
		t.Fatal(err)
	}
	before := r.synced.Load()
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.stop = s.Stop
	t.Cleanup(s.Stop)
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
	for _, wrong := range []string{"", "0", "-1", "1.5", "four", "1e30"} {
		if got, _, err := share.Compute(map[string]string{share.Annotation: wrong}, "main", share.Granted{}, 1); err == nil {
			t.Errorf("%q is %v", wrong, got)
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
		p, err := client.CoreV1().Pods("lab").Get(t.Context(), "train", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		p.Annotations = map[string]string{"gpu-memory": wrong}
		if _, err := client.CoreV1().Pods("lab").Update(t.Context(), p, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		cluster := share.Cluster{Client: client, Units: []share.Unit{unit}}
		if granted, err := cluster.Granted(t.Context(), "lab", "train", "u1", "main"); err == nil || !strings.Contains(err.Error(), "annotation gpu-memory of pod lab/train: \""+wrong) {
			t.Errorf("%q gives %+v, %v", wrong, granted, err)
		}
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

// TestSynchronizeHoldsWhatRuns: a plug-in that comes back opens the jobs of containers that run, and leaves those that are open.
func TestSynchronizeHoldsWhatRuns(t *testing.T) {
	m := machine(t)
	at := m.Cgroup()
	c := container("main", at)
	p := &nri.Plugin{Most: share.Unlimited}
	r := start(t, m, p, pod(map[string]string{share.Annotation: "64Mi"}), c)
	program := m.Interact(at.In(m.Command(m.PreloadEnv(), rig.Build(t, "programs/cudaprog-dlsym"))))
	holds(t, program, "64M")
	r.stop()
	r.connect(t, p)
	program.Want("alloc b 1", "err 2")
	program.End()
}

// TestNoDaemonKeepsContainersFromStarting: a container with a budget does not start without a daemon, one without a budget does.
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
