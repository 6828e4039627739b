//go:build full

package e2e

// This file installs the chart by the commands of the administrator's page, and has the rows of the test that concern the chart.

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// install runs the first commands of the administrator's page, and waits until the plug-ins run, too. The third command is `helm install`.
// Instead, install applies the objects that Helm's packages render.
func (c *cluster) install() {
	c.T.Helper()
	last := ""
	for line := range strings.Lines(pageBlock(c.T, "sh", "kubectl create namespace")) {
		if strings.HasPrefix(line, "helm install ") {
			c.setChart("")
		} else {
			last = c.must("sh", "-euc", line)
		}
	}
	if !strings.HasSuffix(last, " Simulated GPU 0") {
		c.T.Errorf("the last command of the page does not list the GPU: %q", last)
	}
	c.rolledOut()
	c.eventually("the scheduler sees the GPU", func() bool { return c.must("kubectl", "get", "resourceslices", "--output=name") != "" })
	c.apply(claimTemplates)
}

// chart returns the objects of the chart. more is values in YAML, which are added to chartValues.
func (c *cluster) chart(more string) string {
	c.T.Helper()
	command := c.Command(os.Environ(), c.program("render"), "../deploy/gpuarb")
	command.Stdin = strings.NewReader(c.filled(chartValues) + more)
	return c.output(command)
}

// setChart makes the objects of the chart, or changes them. more is values in YAML.
func (c *cluster) setChart(more string) {
	c.T.Helper()
	c.apply(c.chart(more), "--namespace=gpuarb")
}

// gone waits until the chart's pods with a label are gone.
func (c *cluster) gone(label string) {
	c.T.Helper()
	c.must("kubectl", "--namespace=gpuarb", "wait", "--for=delete", "--timeout="+patience().String(), "pod", "--selector="+label)
}

// rolledOut waits until all pods of the chart run as the chart says.
func (c *cluster) rolledOut() {
	c.T.Helper()
	for set := range strings.FieldsSeq(c.must("kubectl", "--namespace=gpuarb", "get", "daemonsets", "--output=name")) {
		c.must("kubectl", "--namespace=gpuarb", "rollout", "status", "--timeout="+patience().String(), set)
	}
}

// testRights checks the daemon's capabilities after its start: it has given up SYS_ADMIN and SETPCAP.
func (c *cluster) testRights() {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.process("gpuarbd")))
	if err != nil {
		c.T.Fatal(err)
	}
	const want = 1<<unix.CAP_CHOWN | 1<<unix.CAP_DAC_READ_SEARCH | 1<<unix.CAP_KILL | 1<<unix.CAP_SETGID | 1<<unix.CAP_SETUID |
		1<<unix.CAP_NET_BIND_SERVICE | 1<<unix.CAP_NET_ADMIN | 1<<unix.CAP_SYS_PTRACE
	for _, set := range []string{"CapEff", "CapPrm", "CapBnd"} {
		if line := fmt.Sprintf("%s:\t%016x\n", set, want); !strings.Contains(string(status), line) {
			c.T.Errorf("the daemon's capabilities are not %s in\n%s", line, status)
		}
	}
	if !strings.Contains(string(status), "NoNewPrivs:\t1\n") {
		c.T.Errorf("the daemon may get new privileges:\n%s", status)
	}
}

// testUpgrade changes a value that all pods of the chart have, while pods with budgets run.
func (c *cluster) testUpgrade() {
	one, two := c.run("one", c.annotated("one", "64Mi")), c.run("two", c.claiming("two", "small"))
	one.fill()
	two.fill()
	before, library := c.process("gpuarbd"), c.library()
	c.setChart("priorityClassName: system-cluster-critical\n")
	c.rolledOut()
	if now := c.process("gpuarbd"); now == before {
		c.T.Error("the daemon was not replaced")
	}
	if now := c.library(); now == library {
		c.T.Error("the library was not replaced by a new file")
	}
	one.stillFull()
	two.stillFull()
	three := c.run("three", c.annotated("three", "64Mi"))
	three.fill()
	c.held(192 << 20)
	c.remove("one", "two", "three")
}

// library returns the inode number of the library on the node.
func (c *cluster) library() string {
	c.T.Helper()
	return c.must("stat", "--format=%i", "/opt/gpuarb/lib/gpuarb/libgpuarb.so")
}

// testPluginAway starts a pod while gpuarb-nri is away. The runtime's validator refuses the container until gpuarb-nri is back.
func (c *cluster) testPluginAway() {
	c.must("kubectl", "--namespace=gpuarb", "delete", "daemonset", "gpuarb-nri")
	c.gone("app.kubernetes.io/component=nri")
	p := c.make("early", c.annotated("early", "64Mi"))
	c.eventually("the runtime refuses the container", func() bool {
		return strings.Contains(c.must("kubectl", "get", "events", "--output=jsonpath={.items[*].message}"), `required plugin "gpuarb" not present`)
	})
	if phase := c.phase("early"); phase != "Pending" {
		c.T.Errorf("the pod is %s", phase)
	}
	c.setChart("")
	c.rolledOut()
	c.ready(p)
	p.fill()
	c.held(64 << 20)
	c.remove("early")
}

// testUninstall removes the chart's objects while pods run, and installs the chart again. In between the programs keep what they hold, and get no more.
func (c *cluster) testUninstall() {
	one, two := c.run("one", c.annotated("one", "64Mi")), c.run("two", c.claiming("two", "small"))
	one.Want("alloc a 48M", "ok")
	two.Want("alloc a 48M", "ok")
	remove := c.in("kubectl", "--namespace=gpuarb", "delete", "--filename=-")
	remove.Stdin = strings.NewReader(c.chart(""))
	c.output(remove)
	c.gone("app.kubernetes.io/name=gpuarb")
	for _, p := range []*pod{one, two} {
		p.Want("alloc b 17M", "err 2")
	}
	c.held(96 << 20)
	c.must("kubectl", "delete", "namespace", "gpuarb")
	c.install()
	for _, p := range []*pod{one, two} {
		p.Want("alloc b 16M", "ok")
		p.stillFull()
	}
	c.held(128 << 20)
	c.remove("one", "two")
}
