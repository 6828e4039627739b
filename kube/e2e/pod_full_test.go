//go:build full

package e2e

// This file runs the test program in pods, and sends it commands.

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// pod is a pod with the test program, which answers commands.
type pod struct {
	*rig.Program
	name string
}

// spec returns a pod with the test program in the namespace default. The program reads and writes named pipes of the machine, which spec
// makes. The other arguments are lines of YAML, or empty: more metadata, more fields of the pod, and more fields of the container.
func (c *cluster) spec(name, metadata, fields, container string) string {
	c.T.Helper()
	for _, end := range []string{".in", ".out"} {
		if err := unix.Mkfifo(c.path("ctl/"+name+end), 0o600); err != nil {
			c.T.Fatal(err)
		}
	}
	return strings.NewReplacer("@NAME@", name, "@METADATA@", metadata, "@FIELDS@", fields, "@CONTAINER@", container).Replace(c.filled(`---
apiVersion: v1
kind: Pod
metadata: {name: @NAME@, namespace: default, labels: {test: gpuarb}, @METADATA@}
spec:
  hostNetwork: true
  automountServiceAccountToken: false
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  @FIELDS@
  containers:
  - name: main
    image: @IMAGE@
    imagePullPolicy: Never
    command: [/bin/sh, -c, "exec /cudaprog-dlsym </ctl/@NAME@.in >/ctl/@NAME@.out"]
    @CONTAINER@
    env:
    - {name: LD_LIBRARY_PATH, value: /driver}
    - {name: SIMCUDA_DIR, value: /sim}
    - {name: SIMCUDA_DEVICES, value: @DEVICES@}
    - {name: SIMCUDA_CONTEXT_BYTES, value: "0"}
    volumeMounts: [{name: driver, mountPath: /driver}, {name: sim, mountPath: /sim}, {name: ctl, mountPath: /ctl}]
  volumes:
  - {name: driver, hostPath: {path: @DRIVER@}}
  - {name: sim, hostPath: {path: @DIR@/sim}}
  - {name: ctl, hostPath: {path: @DIR@/ctl}}
`))
}

// annotation returns metadata that names a budget for the container of a pod.
func annotation(budget string) string {
	return fmt.Sprintf("annotations: {memory.gpuarb.dev/main: %s}", budget)
}

// annotated returns a pod whose annotation names a budget.
func (c *cluster) annotated(name, budget string) string {
	c.T.Helper()
	return c.spec(name, annotation(budget), "", "")
}

// claiming returns a pod with a claim from a template of claimTemplates. metadata is further metadata.
func (c *cluster) claiming(name, template string, metadata ...string) string {
	c.T.Helper()
	claims := fmt.Sprintf("resourceClaims: [{name: gpu, resourceClaimTemplateName: %s}]", template)
	return c.spec(name, strings.Join(metadata, ", "), claims, "resources: {claims: [{name: gpu}]}")
}

// claimTemplates are claims of 64 MiB, 48 MiB and 5 GiB of a GPU.
const claimTemplates = `---
{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {name: small, namespace: default}, spec: {spec: {devices: {requests:
  [{name: gpu, exactly: {deviceClassName: gpu.gpuarb.dev, capacity: {requests: {memory: 64Mi}}}}]}}}}
---
{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {name: smaller, namespace: default}, spec: {spec: {devices: {requests:
  [{name: gpu, exactly: {deviceClassName: gpu.gpuarb.dev, capacity: {requests: {memory: 48Mi}}}}]}}}}
---
{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {name: large, namespace: default}, spec: {spec: {devices: {requests:
  [{name: gpu, exactly: {deviceClassName: gpu.gpuarb.dev, capacity: {requests: {memory: 5Gi}}}}]}}}}
`

// connect returns the program in a pod that spec has described. The pod need not exist yet.
func (c *cluster) connect(name string) *pod {
	c.T.Helper()
	const bridge = `cat "$0.out" & exec cat >"$0.in"`
	return &pod{c.Begin(c.Command(c.Env(), "sh", "-c", bridge, c.path("ctl/"+name))), name}
}

// make makes a pod, and does not wait until it runs.
func (c *cluster) make(name, spec string) *pod {
	c.T.Helper()
	p := c.connect(name)
	c.apply(spec)
	return p
}

// run makes a pod and waits until its program answers.
func (c *cluster) run(name, spec string) *pod {
	c.T.Helper()
	p := c.make(name, spec)
	c.ready(p)
	return p
}

// ready waits until a pod runs and its program answers.
func (c *cluster) ready(p *pod) {
	c.T.Helper()
	c.must("kubectl", "wait", "--for=jsonpath={.status.phase}=Running", "--timeout="+patience().String(), "pod/"+p.name)
	p.Expect("ready")
}

// phase returns the phase of a pod, such as Running.
func (c *cluster) phase(name string) string {
	c.T.Helper()
	return c.must("kubectl", "get", "pod", name, "--output=jsonpath={.status.phase}")
}

// remove removes pods, waits until they are gone, and removes their pipes.
func (c *cluster) remove(names ...string) {
	c.T.Helper()
	c.must(append([]string{"kubectl", "delete", "pod", "--ignore-not-found", "--wait"}, names...)...)
	for _, name := range names {
		for _, end := range []string{".in", ".out"} {
			_ = os.Remove(c.path("ctl/" + name + end))
		}
	}
}

// fill takes memory up to a budget of 64 MiB, and checks that the next byte is refused.
func (p *pod) fill() {
	p.Want("alloc a 48M", "ok")
	p.Want("alloc b 16M", "ok")
	p.Want("alloc c 1", "err 2")
}

// stillFull checks that a pod that fill has filled still has what it holds, can free and take it again, and gets no more.
func (p *pod) stillFull() {
	p.Want("alloc c 1", "err 2")
	p.Want("free b", "ok")
	p.Want("alloc b 16M", "ok")
	p.Want("alloc c 1", "err 2")
}

// held checks how many bytes the driver has given out.
func (c *cluster) held(want uint64) {
	c.T.Helper()
	rig.Eventually(c.T, fmt.Sprintf("the driver holds %d bytes", want), func() bool { return c.SimNumber("total", "0") == want })
}

// jobs returns what `gpuarb job list` prints.
func (c *cluster) jobs() string {
	c.T.Helper()
	return c.must("/opt/gpuarb/bin/gpuarb", "job", "list")
}

// claimFiles returns the CDI files of claims on the node.
func (c *cluster) claimFiles() string {
	c.T.Helper()
	return c.must("find", "/run/cdi", "-name", "*claim*")
}

// empty checks that the pods of a row left nothing behind: memory of the driver, jobs, claims, and CDI files of claims.
func (c *cluster) empty() {
	c.T.Helper()
	c.held(0)
	c.eventually("no job is left", func() bool { return !strings.Contains(c.jobs(), "default/") })
	c.eventually("no claim is left", func() bool { return c.must("kubectl", "get", "resourceclaims", "--output=name") == "" })
	c.eventually("no CDI file of a claim is left", func() bool { return c.claimFiles() == "" })
}

// process returns the PID of the only process in a pod that runs a program of the chart. It waits until there is one. A process whose parent
// runs the same program is a part of its parent, and is not counted.
func (c *cluster) process(name string) (pid int) {
	c.T.Helper()
	c.eventually("one "+name+" runs", func() bool {
		found := map[int]bool{}
		paths, _ := filepath.Glob("/proc/[0-9]*/comm")
		for _, path := range paths {
			folder := filepath.Dir(path)
			is, _ := os.ReadFile(path)
			cgroups, _ := os.ReadFile(folder + "/cgroup")
			if strings.TrimSpace(string(is)) == name && strings.Contains(string(cgroups), c.cgroup()+"/") {
				number, _ := strconv.Atoi(filepath.Base(folder))
				found[number] = true
			}
		}
		for number := range found {
			if found[parent(number)] {
				delete(found, number)
			}
		}
		for pid = range found {
		}
		return len(found) == 1
	})
	return pid
}

// parent returns the PID of a process's parent; 0: the process has ended.
func parent(pid int) (of int) {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, line, _ := strings.Cut(string(status), "\nPPid:")
	_, _ = fmt.Sscan(line, &of)
	return of
}

// programPID returns the PID of a pod's test program: the process whose input is the pod's.
func (c *cluster) programPID(p *pod) int {
	c.T.Helper()
	input, err := os.Stat(c.path("ctl/" + p.name + ".in"))
	if err != nil {
		c.T.Fatal(err)
	}
	inputs, _ := filepath.Glob("/proc/[0-9]*/fd/0")
	for _, path := range inputs {
		if file, err := os.Stat(path); err == nil && os.SameFile(file, input) {
			pid, _ := strconv.Atoi(strings.Split(path, "/")[2])
			return pid
		}
	}
	c.T.Fatalf("no program of %s runs", p.name)
	return 0
}
