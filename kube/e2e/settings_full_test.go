//go:build full

package e2e

// This file has the settings of the cluster's programs, and reads the administrator's page.

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// filled returns a text with the cluster's values in place of the words @DIR@, @CGROUP@, @DRIVER@, @DEVICES@ and @IMAGE@. The first word
// stands for the cluster's folder, and the second one for the cgroup of its pods. The next two stand for the folder and the devices of the
// simulated driver. The last word stands for the image of sandboxes, which is also the image of the test program.
func (c *cluster) filled(text string) string {
	return strings.NewReplacer("@DIR@", c.Dir, "@CGROUP@", c.cgroup(), "@DRIVER@", filepath.Dir(rig.Build(c.T, "sim/libcuda.so.1")),
		"@DEVICES@", devices, "@IMAGE@", programImage).Replace(text)
}

// pageBlock returns the block of the administrator's page that has a kind, such as sh, and begins with a text.
func pageBlock(t testing.TB, kind, begins string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/admin/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, found := strings.Cut(string(page), "\n```"+kind+"\n"+begins)
	if !found {
		t.Fatalf("docs/admin/kubernetes.md has no block (%s) that begins with %q", kind, begins)
	}
	block, _, _ = strings.Cut(block, "\n```\n")
	return begins + block + "\n"
}

const kubeconfig = `
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1", insecure-skip-tls-verify: true}}]
users: [{name: u, user: {token: the-token}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
current-context: c
`

const kubelet = `
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
cgroupDriver: cgroupfs
cgroupRoot: @CGROUP@
containerRuntimeEndpoint: unix://@DIR@/containerd.sock
enforceNodeAllocatable: []
evictionHard: {memory.available: "0%", nodefs.available: "0%", nodefs.inodesFree: "0%", imagefs.available: "0%"}
failCgroupV1: false
failSwapOn: false
localStorageCapacityIsolation: false
makeIPTablesUtilChains: false
maxPods: 150
podLogsDir: @DIR@/logs
registerWithTaints: []
syncFrequency: 10s
# Pods start as fast as the machine can.
kubeAPIQPS: 200
kubeAPIBurst: 400
eventRecordQPS: 0
`

// containerd has the settings of containerd, except those of NRI. They are on the administrator's page.
const containerd = `
version = 3
root = "@DIR@/containerd"
state = "/run/containerd"
[grpc]
  address = "@DIR@/containerd.sock"
[plugins.'io.containerd.internal.v1.opt']
  path = "/opt/containerd"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "@IMAGE@"
[plugins.'io.containerd.cri.v1.runtime']
  enable_cdi = true
  cdi_spec_dirs = ["/run/cdi"]
  restrict_oom_score_adj = true
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      SystemdCgroup = false
`

// chartValues are the values with which the chart is installed. The daemon gets the simulated driver. The GPU has 64 shares, so that
// a third of the pods of testRandom can have claims.
const chartValues = `
image: {repository: gpuarb.test/gpuarb, tag: "1", pullPolicy: Never}
daemon:
  runtimeClassName: ""
  config: |
    schema_version = 1
    [[device]]
    context_reserve = "0"
  env:
    - {name: LD_LIBRARY_PATH, value: /driver}
    - {name: SIMCUDA_DIR, value: /sim}
    - {name: SIMCUDA_DEVICES, value: @DEVICES@}
    - {name: SIMCUDA_CONTEXT_BYTES, value: "0"}
    - {name: OCL_ICD_VENDORS, value: /dev/null}
    - {name: VK_DRIVER_FILES, value: /dev/null}
  volumes:
    - {name: driver, hostPath: {path: @DRIVER@}}
    - {name: sim, hostPath: {path: @DIR@/sim}}
  volumeMounts:
    - {name: driver, mountPath: /driver, readOnly: true}
    - {name: sim, mountPath: /sim}
dra:
  gpu: none
  expectedShares: 64
`
