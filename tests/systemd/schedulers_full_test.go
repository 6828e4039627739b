//go:build full

package systemd

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/bounded"
)

// This file installs the packages gpuarb-slurm and gpuarb-kube on a booted machine, and removes them. tests/slurm and kube/ have the tests of
// what the plug-ins do.

// slurmConf is a node with one GPU of eight shards, without what docs/admin/slurm.md adds. The ports are not Slurm's usual ones, because the
// machine has the network of the machine that runs the test. The programs need no GPU but the simulated one, so that any file in /dev serves.
const slurmConf = `ClusterName=gpuarb-test
SlurmctldHost=gpuarb-test(127.0.0.1)
SlurmctldPort=16817
SlurmdPort=16818
SlurmUser=root
AuthType=auth/munge
SlurmdLogFile=/var/log/slurm/slurmd.log
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu,shard
ReturnToService=2
SlurmdParameters=config_overrides
NodeName=gpuarb-test NodeAddr=127.0.0.1 CPUs=32 Boards=1 SocketsPerBoard=1 CoresPerSocket=32 ThreadsPerCore=1 RealMemory=4000 Gres=gpu:1,shard:8 State=UNKNOWN
PartitionName=debug Nodes=gpuarb-test Default=YES MaxTime=INFINITE State=UP
`

const gresConf = `NodeName=gpuarb-test Name=gpu File=/dev/null
NodeName=gpuarb-test Name=shard Count=8 File=/dev/null
`

// cgroupConf names a mount of the freezer that slurmd may write to. The container's own is read-only.
const cgroupConf = `CgroupPlugin=cgroup/v1
CgroupMountpoint=/run/cgroup
`

// slurm configures Debian's Slurm on the machine, and starts its controller.
func (h *host) slurm() {
	h.t.Helper()
	for name, text := range map[string]string{"slurm.conf": slurmConf, "gres.conf": gresConf, "cgroup.conf": cgroupConf} {
		h.shell("cat >/etc/slurm/" + name + " <<'.'\n" + text + ".")
	}
	h.t.Cleanup(func() {
		if h.t.Failed() {
			out, _ := h.command("journalctl --no-pager --boot -u slurmctld -u slurmd -u munge | tail -n 60; tail -n 30 /var/log/slurm/slurmd.log; sinfo -R; journalctl --no-pager -t gpuarb-epilog").CombinedOutput()
			h.t.Logf("Slurm's journal:\n%s", out)
		}
	})
	h.shell("hostname gpuarb-test; echo 127.0.0.1 gpuarb-test >>/etc/hosts; mkdir -p /var/lib/slurm/slurmctld /var/lib/slurm/slurmd")
	h.shell("mkdir -p /run/cgroup/freezer && mount -t cgroup -o freezer freezer /run/cgroup/freezer")
	h.shell("systemctl restart munge slurmctld")
}

// TestFullSystemdSlurm: with the packages of gpuarb and the commands of the page, Debian's Slurm holds a step to its shards, and to less by
// --gpu-mem. The Epilog writes the account of the job to the system's log. A purge leaves nothing.
func TestFullSystemdSlurm(t *testing.T) {
	h := prepare(t, "slurmctld", "slurmd", "slurm-client", "munge")
	debs := h.build("../..", []string{"gpuarb", "gpuarb-slurm"})
	t.Cleanup(func() { // slurmd leaves its cgroup, which is in a hierarchy of the machine that runs the test
		_ = exec.Command("find", "/sys/fs/cgroup/freezer/slurm_gpuarb-test", "-depth", "-type", "d", "-exec", "rmdir", "{}", ";").Run()
	})
	h.start()
	h.slurm()
	h.shell("useradd --create-home --shell /bin/sh ann; ln -s simcuda-0 /dev/shm/simcuda-$(id -u ann)")
	clean := h.files()
	h.page(blocks(t, "admin/slurm.md")[0], debs...)
	h.shell("scontrol reconfigure")
	bounded.Until(t, "the node takes jobs", func() bool { return h.command("sinfo -h -o %t | grep -w idle").Run() == nil })

	const context = 64 << 20 // counts in the budgets of Slurm's jobs
	for _, c := range []struct{ options, want string }{
		{"--gres=shard:4 --gpu-mem=2G", "ok,err 2"},
		{"--gres=shard:2", "ok,err 2"},
		{"", "init err 2"}, // the budget is that of default=, which the page leaves at 0
	} {
		out := h.shell(fmt.Sprintf(`su --login ann --command 'printf "alloc a %d\nalloc b 1\n" | srun %s cudaprog-dlsym' 2>&1 || true`, 2<<30-context, c.options))
		var answers []string
		for line := range strings.Lines(out) {
			if words := strings.Fields(line); len(words) > 2 && words[0] == "alloc" {
				answers = append(answers, strings.Join(words[2:], " "))
			} else if len(words) > 0 && words[0] == "init" {
				answers = append(answers, strings.TrimSpace(line))
			}
		}
		if got := strings.Join(answers, ","); got != c.want {
			t.Errorf("srun %s: %s, want %s\n%s", c.options, got, c.want, out)
		}
	}
	bounded.Until(t, "the Epilog has written the first job's account to the system's log", func() bool {
		return h.command("journalctl --no-pager -t gpuarb-epilog | grep 'slurm-1 of ann: .* of 2 GiB on GPU 0'").Run() == nil
	})

	h.shell("systemctl stop slurmd slurmctld; sed -i '/gpuarb/d' /etc/slurm/plugstack.conf")
	h.apt("purge gpuarb-slurm gpuarb")
	h.purged(clean, "/etc/slurm/plugstack.conf", "/var/lib/slurm/")
}

// TestFullSystemdKube: the services of gpuarb-kube do not start by themselves. Once enabled they try again for as long as the kubelet's
// kubeconfig file or the runtime is not there, and the journal says which. gpuarb-dra waits for the API server. A purge leaves nothing, and gpuarb stays.
func TestFullSystemdKube(t *testing.T) {
	h := prepare(t)
	debs := h.build("../..", []string{"gpuarb", "gpuarb-kube"})
	h.start()
	h.apt("install " + debs[0])
	clean, devices := h.files(), h.shell("ls /run/cdi")
	h.apt("install " + debs[1])
	const units = "gpuarb-nri.service gpuarb-dra.service"
	if got := h.shell("systemctl is-enabled " + units + " || true; systemctl is-active " + units + " || true"); got != "disabled\ndisabled\ninactive\ninactive" {
		t.Fatalf("after the installation the units are %q", got)
	}
	says := func(unit, text string) {
		t.Helper()
		bounded.Until(t, unit+" says "+text, func() bool {
			return strings.Contains(h.shell("journalctl --no-pager --boot --unit="+unit), text)
		})
	}
	h.page(blocks(t, "admin/kubernetes.md")[1], debs...)
	h.shell("systemctl enable --now gpuarb-dra")
	for _, unit := range strings.Fields(units) {
		says(unit, "/etc/kubernetes/kubelet.conf: no such file or directory")
		bounded.Until(t, unit+" tries again and again", func() bool {
			return h.command("test $(systemctl show -P NRestarts "+unit+") -gt 7").Run() == nil // more than systemd's usual limit
		})
	}
	h.shell("mkdir /etc/kubernetes; cat >/etc/kubernetes/kubelet.conf <<'.'\n" + kubeletConf + ".")
	says("gpuarb-nri.service", "/var/run/nri/nri.sock: connect: no such file or directory")
	bounded.Until(t, "gpuarb-dra waits for the API server", func() bool { return h.shell("systemctl is-active gpuarb-dra || true") == "active" })

	h.shell("touch /run/cdi/gpuarb.dev-claim-6d0e.json") // gpuarb-dra writes such a file for each claim
	h.apt("purge gpuarb-kube")
	h.shell("rm -r /etc/kubernetes")
	h.purged(clean)
	if got := h.shell("ls /run/cdi; systemctl is-active gpuarbd.service; systemctl list-units --all --no-legend --plain 'gpuarb-*'"); got != devices+"\nactive" {
		t.Errorf("after the purge: %q", got)
	}
}

// kubeletConf names an API server that does not run.
const kubeletConf = `apiVersion: v1
kind: Config
clusters:
- name: test
  cluster: {server: "https://127.0.0.1:1"}
users:
- name: node
  user: {}
contexts:
- name: node
  context: {cluster: test, user: node}
current-context: node
`

// purged checks that the machine has the same files as before, without those whose paths begin with one of the given texts.
func (h *host) purged(before string, others ...string) {
	h.t.Helper()
	var left []string
	for line := range strings.Lines(difference(h.t, before, h.files())) {
		path, changed := strings.CutPrefix(strings.TrimSpace(line), "> ")
		if !changed {
			path, changed = strings.CutPrefix(strings.TrimSpace(line), "< ")
		}
		for _, other := range others {
			changed = changed && !strings.HasPrefix(path, other)
		}
		if changed {
			left = append(left, strings.TrimSpace(line))
		}
	}
	if len(left) != 0 {
		h.t.Errorf("after the purge:\n%s", strings.Join(left, "\n"))
	}
}
