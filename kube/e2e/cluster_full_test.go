//go:build full

package e2e

// This file starts and ends the cluster. The cluster has mount and network namespaces of its own. Outside of them it makes cgroups, all of
// them below a cgroup with the name of the test's folder, and removes them at the end.

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// node is the name of the cluster's node.
const node = "node"

// devices are the simulated driver's devices: one GPU of 8 GiB.
const devices = "8G"

// life is the longest time of the whole test.
const life = 90 * time.Minute

// cluster is a Kubernetes of one node. The node has the simulated driver. The machine of package rig has no daemon: the daemon runs in a pod.
type cluster struct {
	*rig.Machine            // its field T is the row of the test that runs now
	whole        *testing.T // the whole test
	inside       []string   // words that run a command in the namespaces
	parts        map[string]*part
}

// part is a running program of the cluster.
type part struct {
	words []string
	cmd   *exec.Cmd
	ended chan struct{} // closed when the program has ended
}

// namespaces is a shell script. It mounts empty folders over those of the machine that Kubernetes uses, and makes a network with the
// addresses of the node and of the API server's service. It prints "ready" and runs until it is killed.
const namespaces = `
mount -t tmpfs none /run
mount -t tmpfs none /opt
mount -t tmpfs none /var/lib
mkdir -p /run/nri /run/cdi /var/lib/kubelet
ip link set lo up
ip address add 10.99.0.1/24 dev lo
ip address add 10.98.0.1/32 dev lo
ip route add default via 10.99.0.1 dev lo
echo ready
exec sleep infinity`

// newCluster starts a cluster without gpuarb.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	m := rig.New(t, rig.Options{Devices: devices, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}, NoMount: true, Stopped: true, Life: life})
	c := &cluster{Machine: m, whole: t, parts: map[string]*part{}}
	holder := m.Begin(m.Command(m.Env(), "unshare", "--mount", "--net", "--propagation", "private", "sh", "-euc", namespaces))
	holder.Expect("ready")
	c.inside = []string{"nsenter", fmt.Sprintf("--target=%d", holder.Process()), "--mount", "--net", "--"}
	for _, folder := range []string{"certs", "ctl", "logs", "parts"} {
		if err := os.Mkdir(c.path(folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(c.end)
	c.makeCgroups()
	c.writeSettings()
	c.startControlPlane()
	c.start("containerd", "--config", c.path("containerd.toml"))
	rig.Eventually(t, "containerd answers", func() bool {
		return c.try(c.program("ctr"), "--address", c.path("containerd.sock"), "version") == nil
	})
	c.load(programImage, c.programRoot(), "/bin/sleep infinity")
	c.load(gpuarbImage, c.gpuarbRoot(), "gpuarbd")
	c.start("kubelet", "--config", c.path("kubelet.yaml"), "--kubeconfig", c.path("kubeconfig"), "--root-dir", "/var/lib/kubelet",
		"--cert-dir", c.path("certs/kubelet"), "--hostname-override", node, "--node-ip", "10.99.0.1")
	c.eventually("the node is registered", func() bool { return c.try("kubectl", "get", "node", node) == nil })
	c.must("kubectl", "wait", "--for=condition=Ready", "--timeout=3m", "node/"+node)
	return c
}

// writeSettings writes the settings of the programs, and the key that signs the tokens of service accounts.
func (c *cluster) writeSettings() {
	c.T.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		c.T.Fatal(err)
	}
	c.write("certs/sa.key", string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})))
	c.write("certs/tokens.csv", `the-token,admin,1,"system:masters"`+"\n")
	c.write("kubeconfig", kubeconfig)
	c.write("kubelet.yaml", c.filled(kubelet))
	c.write("containerd.toml", c.filled(containerd)+pageBlock(c.T, "", "[plugins."))
}

// startControlPlane starts etcd, API server, scheduler and controller manager. The API server listens at the address and port of its own
// service, so that no proxy is needed.
func (c *cluster) startControlPlane() {
	c.T.Helper()
	certs, config := c.path("certs"), c.path("kubeconfig")
	c.start("etcd", "--data-dir", c.path("etcd"), "--listen-client-urls", "http://127.0.0.1:2379", "--advertise-client-urls", "http://127.0.0.1:2379",
		"--listen-peer-urls", "http://127.0.0.1:2380", "--unsafe-no-fsync")
	c.start("kube-apiserver", "--etcd-servers", "http://127.0.0.1:2379", "--secure-port", "443", "--cert-dir", certs,
		"--token-auth-file", certs+"/tokens.csv", "--authorization-mode", "RBAC", "--service-account-issuer", "https://kubernetes.default.svc",
		"--service-account-key-file", certs+"/sa.key", "--service-account-signing-key-file", certs+"/sa.key", "--service-cluster-ip-range", "10.98.0.0/24",
		"--disable-admission-plugins", "TaintNodesByCondition", "--advertise-address", "10.99.0.1", "--kubelet-preferred-address-types", "InternalIP")
	c.eventually("the API server is ready", func() bool { return c.try("kubectl", "get", "--raw", "/readyz") == nil })
	c.start("kube-scheduler", "--kubeconfig", config, "--leader-elect=false")
	c.start("kube-controller-manager", "--kubeconfig", config, "--leader-elect=false", "--root-ca-file", certs+"/apiserver.crt",
		"--service-account-private-key-file", certs+"/sa.key", "--controllers", "daemonset-controller,garbage-collector-controller,namespace-controller,"+
			"pod-garbage-collector-controller,resourceclaim-controller,root-ca-certificate-publisher-controller,serviceaccount-controller")
}

// path returns the path of a file of the cluster.
func (c *cluster) path(name string) string { return filepath.Join(c.Dir, name) }

// write writes a file of the cluster.
func (c *cluster) write(name, text string) {
	c.T.Helper()
	if err := os.WriteFile(c.path(name), []byte(text), 0o644); err != nil {
		c.T.Fatal(err)
	}
}

// programs returns the folder with the programs of the cluster.
func programs(t testing.TB) string {
	t.Helper()
	if folder := os.Getenv("GPUARB_TEST_KUBERNETES"); folder != "" {
		return folder
	}
	t.Fatal("GPUARB_TEST_KUBERNETES must name the folder with the programs of the cluster: run the test by `make test-kube-e2e`")
	return ""
}

// program returns the path of a program of the cluster.
func (c *cluster) program(name string) string { return filepath.Join(programs(c.T), name) }

// start starts a program of the cluster, which runs until the end of the whole test. The program's output goes to a file, whose end is shown
// if the test fails.
func (c *cluster) start(name string, arguments ...string) {
	c.T.Helper()
	row := c.T
	c.T = c.whole
	defer func() { c.T = row }()
	log, err := os.OpenFile(c.path("parts/"+name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		c.T.Fatal(err)
	}
	defer log.Close()
	p := &part{words: arguments, cmd: c.in(append([]string{c.program(name)}, arguments...)...), ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.cmd.Start(); err != nil {
		c.T.Fatal(err)
	}
	go func() { defer close(p.ended); _ = p.cmd.Wait() }()
	c.parts[name] = p
}

// restart kills a program of the cluster and starts it again.
func (c *cluster) restart(name string) {
	c.T.Helper()
	p := c.parts[name]
	if err := p.cmd.Process.Kill(); err != nil {
		c.T.Fatal(err)
	}
	<-p.ended
	c.start(name, p.words...)
}

// in returns a command in the cluster's namespaces. kubectl is found there, and uses the cluster.
func (c *cluster) in(words ...string) *exec.Cmd {
	words = append(slices.Clone(c.inside), words...)
	env := append(c.Env(), "KUBECONFIG="+c.path("kubeconfig"), "HOME="+c.Dir, "PATH="+programs(c.T)+":/usr/sbin:/usr/bin:/sbin:/bin")
	return c.Command(env, words[0], words[1:]...)
}

// patience is the longest time that the cluster may take for an expected event.
func patience() time.Duration { return 5 * rig.Patience }

// try runs a command in the namespaces and returns its error.
func (c *cluster) try(words ...string) error {
	c.T.Helper()
	if r := rig.RunFor(c.T, patience(), c.in(words...)); r.Code != 0 {
		return fmt.Errorf("%q: %d\n%s%s", words, r.Code, r.Stdout, r.Stderr)
	}
	return nil
}

// must runs a command in the namespaces and returns its output.
func (c *cluster) must(words ...string) string {
	c.T.Helper()
	return c.output(c.in(words...))
}

// output runs a command and returns its output.
func (c *cluster) output(command *exec.Cmd) string {
	c.T.Helper()
	r := rig.RunFor(c.T, patience(), command)
	if r.Code != 0 {
		c.T.Fatalf("%q: %d\n%s%s\n%s", command.Args, r.Code, r.Stdout, r.Stderr, c.state())
	}
	return strings.TrimSpace(r.Stdout)
}

// apply makes objects, or changes them. flags are further flags of kubectl.
func (c *cluster) apply(text string, flags ...string) {
	c.T.Helper()
	command := c.in(append([]string{"kubectl", "apply", "--server-side", "--filename=-"}, flags...)...)
	command.Stdin = strings.NewReader(text)
	c.output(command)
}

// eventually polls f until it returns true. It fails the test if that takes longer than patience.
func (c *cluster) eventually(what string, f func() bool) {
	c.T.Helper()
	for deadline := time.Now().Add(patience()); !f(); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(deadline) {
			c.T.Fatalf("not so within %v: %s\n%s", patience(), what, c.state())
		}
	}
}

// state describes pods, claims and events, for messages.
func (c *cluster) state() string {
	objects := rig.Run(c.T, c.in("kubectl", "get", "pods,resourceclaims,resourceslices", "--all-namespaces", "--output=wide"))
	events := rig.Run(c.T, c.in("kubectl", "get", "events", "--all-namespaces", "--sort-by=.lastTimestamp"))
	slices := rig.Run(c.T, c.in("kubectl", "get", "resourceslices", "--output=jsonpath={.items[*].spec.devices}"))
	return objects.Stdout + objects.Stderr + slices.Stdout + "\n" + events.Stdout[max(0, len(events.Stdout)-6000):]
}

// end kills everything that runs in the cluster, and removes its cgroups. If the test failed, it first shows the ends of the logs.
func (c *cluster) end() {
	if c.T.Failed() {
		logs, _ := filepath.Glob(c.path("parts/*"))
		pods, _ := filepath.Glob(c.path("logs/gpuarb_*/*/*.log"))
		for _, path := range append(logs, pods...) {
			text, _ := os.ReadFile(path)
			c.T.Logf("%s ends with:\n%s", path, text[max(0, len(text)-4000):])
		}
	}
	for _, p := range c.parts {
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
	rig.Eventually(c.T, "the shims have ended", func() bool { return c.killShims() == 0 })
	rig.Eventually(c.T, "the cgroups of the pods are gone", c.removeCgroups)
}

// killShims kills the programs between containerd and the containers, and returns how many it found.
func (c *cluster) killShims() (count int) {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range lines {
		text, _ := os.ReadFile(path)
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err == nil && bytes.Contains(text, []byte("containerd-shim-runc-v2")) && bytes.Contains(text, []byte(c.path("containerd.sock"))) {
			count++
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
	return count
}

// cgroup is the path of the cgroup in which all pods are, in each hierarchy.
func (c *cluster) cgroup() string { return "/" + filepath.Base(c.Dir) }

// cgroups returns the folder of the cluster's cgroup in each hierarchy.
func (c *cluster) cgroups() (folders []string) {
	const mount = "/sys/fs/cgroup"
	hierarchies := []string{mount}
	if _, err := os.Stat(mount + "/cgroup.controllers"); err != nil { // not cgroup v2 alone
		hierarchies, _ = filepath.Glob(mount + "/*/cgroup.procs")
		for i, path := range hierarchies {
			hierarchies[i] = filepath.Dir(path)
		}
	}
	for _, root := range hierarchies {
		folders = append(folders, root+c.cgroup())
	}
	return folders
}

// makeCgroups makes the cluster's cgroup. In the hierarchy cpuset of cgroup v1, a new cgroup has no processors and no memory until they are
// written there.
func (c *cluster) makeCgroups() {
	c.T.Helper()
	for _, folder := range c.cgroups() {
		err := os.MkdirAll(folder, 0o755)
		for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
			text, absent := os.ReadFile(filepath.Join(filepath.Dir(folder), name))
			if absent == nil && err == nil {
				err = os.WriteFile(filepath.Join(folder, name), text, 0o644)
			}
		}
		if err != nil {
			c.T.Fatal(err)
		}
	}
}

// removeCgroups kills the processes in the cluster's cgroups, and removes the cgroups. It returns false if some are left.
func (c *cluster) removeCgroups() bool {
	left := false
	for _, root := range c.cgroups() {
		var folders []string
		_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				folders = append(folders, path)
			}
			return nil
		})
		slices.Reverse(folders)
		for _, folder := range folders {
			procs, _ := os.ReadFile(filepath.Join(folder, "cgroup.procs"))
			for word := range strings.FieldsSeq(string(procs)) {
				if pid, err := strconv.Atoi(word); err == nil && pid > 1 {
					_ = unix.Kill(pid, unix.SIGKILL)
				}
			}
			if err := os.Remove(folder); err != nil && !errors.Is(err, fs.ErrNotExist) {
				left = true
			}
		}
	}
	return !left
}
