//go:build full

package e2e

// This file has the whole test, and its rows that concern pods with budgets.

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// TestFullCluster installs the chart in a cluster, and tests it row by row. All rows run in one cluster, because a cluster takes long to
// start. After each row nothing of its pods may be left.
func TestFullCluster(t *testing.T) {
	c := newCluster(t)
	for _, row := range []struct {
		name string
		run  func(*cluster)
	}{
		{"Install", (*cluster).install},
		{"Rights", (*cluster).testRights},
		{"Annotation", (*cluster).testAnnotation},
		{"Claims", (*cluster).testClaims},
		{"Pending", (*cluster).testPending},
		{"Restarts", (*cluster).testRestarts},
		{"Upgrade", (*cluster).testUpgrade},
		{"PluginAway", (*cluster).testPluginAway},
		{"Random", (*cluster).testRandom},
		{"Uninstall", (*cluster).testUninstall},
	} {
		if !t.Run(row.name, func(t *testing.T) {
			c.T = t
			defer func() { c.T = c.whole }()
			row.run(c)
			c.empty()
		}) {
			t.Fatalf("the rows after %s are not run", row.name)
		}
	}
}

// testAnnotation holds a container to its annotation, beside a pod without a budget.
func (c *cluster) testAnnotation() {
	held := c.run("annotated", c.annotated("annotated", "64Mi"))
	free := c.run("free", c.spec("free", "", "", ""))
	held.fill()
	c.held(64 << 20)
	free.Want("alloc a 100M", "ok")
	if jobs := c.jobs(); !strings.Contains(jobs, "default/annotated/main") || strings.Contains(jobs, "free") {
		c.T.Errorf("the jobs are\n%s", jobs)
	}
	c.remove("annotated", "free")
}

// testClaims holds two pods with claims of 64 MiB each to their shares of the same GPU, and a third one to the lower amount of an annotation.
func (c *cluster) testClaims() {
	one, two := c.run("one", c.claiming("one", "small")), c.run("two", c.claiming("two", "small"))
	one.fill()
	two.fill()
	c.held(128 << 20)
	const consumed = `--output=jsonpath={range .items[*]}{.status.allocation.devices.results[*].consumedCapacity.memory}{"\n"}{end}`
	if shares := c.must("kubectl", "get", "resourceclaims", consumed); shares != "67108864\n67108864" {
		c.T.Errorf("the scheduler counts %q", shares)
	}
	for uid := range strings.FieldsSeq(c.must("kubectl", "get", "resourceclaims", "--output=jsonpath={.items[*].metadata.uid}")) {
		if files := c.claimFiles(); !strings.Contains(files, "/run/cdi/gpuarb.dev-claim-"+uid+".json") {
			c.T.Errorf("claim %s has no CDI file:\n%s", uid, files)
		}
	}
	one.stillFull()
	c.remove("one")
	c.held(64 << 20)
	two.stillFull()
	lowered := c.run("lowered", c.claiming("lowered", "small", annotation("32Mi")))
	lowered.Want("alloc a 32M", "ok")
	lowered.Want("alloc b 1", "err 2")
	c.held(96 << 20)
	c.remove("two", "lowered")
}

// testPending leaves a pod pending whose claim does not fit beside another claim, and starts it when the other claim is gone.
func (c *cluster) testPending() {
	first := c.run("first", c.claiming("first", "large"))
	first.Want("alloc a 5G", "ok")
	second := c.make("second", c.claiming("second", "large"))
	c.eventually("the scheduler says that the claim does not fit", func() bool {
		return strings.Contains(c.must("kubectl", "get", "pod", "second", "--output=jsonpath={.status.conditions[*].message}"), "cannot allocate all claims")
	})
	if phase := c.phase("second"); phase != "Pending" {
		c.T.Errorf("a pod whose claim does not fit is %s", phase)
	}
	c.held(5 << 30)
	c.remove("first")
	c.ready(second)
	// The daemon first reads from the device that the memory of the first pod is free.
	rig.Eventually(c.T, "the second pod gets its share", func() bool { return second.Ask("alloc a 5G") == "ok" })
	second.Want("alloc b 1", "err 2")
	c.held(5 << 30)
	c.remove("second")
}

// testRestarts kills kubelet, containerd, plug-ins and daemon while pods run. The pods keep what they hold, and their budgets hold.
func (c *cluster) testRestarts() {
	one, two := c.run("one", c.annotated("one", "64Mi")), c.run("two", c.claiming("two", "small"))
	one.fill()
	two.fill()
	for _, name := range []string{"kubelet", "containerd"} {
		c.restart(name)
		c.eventually("the kubelet answers", func() bool { return c.try("kubectl", "get", "--raw", "/api/v1/nodes/"+node+"/proxy/healthz") == nil })
		one.stillFull()
		two.stillFull()
	}
	for _, name := range []string{"gpuarb-nri", "gpuarb-dra", "gpuarbd"} {
		before := c.process(name)
		if err := unix.Kill(before, unix.SIGKILL); err != nil {
			c.T.Fatal(err)
		}
		rig.Eventually(c.T, name+" has ended", func() bool { return unix.Kill(before, 0) != nil })
		c.process(name)
		c.rolledOut()
		one.stillFull()
		two.stillFull()
	}
	c.held(128 << 20)
	three, four := c.run("three", c.annotated("three", "64Mi")), c.run("four", c.claiming("four", "small"))
	three.fill()
	four.fill()
	c.held(256 << 20)
	if phases := c.phase("one") + c.phase("two"); phases != "RunningRunning" {
		c.T.Errorf("the pods are %s", phases)
	}
	c.remove("one", "two", "three", "four")
}

// pods is the number of pods of testRandom: as many as a node has by default.
const pods = 110

// testRandom makes pods with budgets, and ends them at random: while they start, by the death of their programs, and by removals with and
// without grace.
func (c *cluster) testRandom() {
	seed := rand.Uint64()
	c.T.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	var text strings.Builder
	open := make([]*pod, pods)
	names := make([]string, pods)
	for i := range open {
		names[i] = fmt.Sprintf("p%03d", i)
		if i%3 == 0 {
			text.WriteString(c.claiming(names[i], "smaller"))
		} else {
			text.WriteString(c.annotated(names[i], "48Mi"))
		}
		open[i] = c.connect(names[i])
	}
	c.apply(text.String())
	for _, i := range random.Perm(pods) {
		c.endAtRandom(open[i], random)
	}
	c.remove(names...)
	c.rolledOut()
	c.process("gpuarb-nri")
}

// endAtRandom ends a pod in a way that random chooses, or leaves it for the end of the row.
func (c *cluster) endAtRandom(p *pod, random *rand.Rand) {
	c.T.Helper()
	if random.IntN(4) == 0 { // it may be before the pod starts, while it starts, or later
		c.must("kubectl", "delete", "pod", "--wait=false", p.name)
		return
	}
	c.ready(p)
	p.Want("alloc a 48M", "ok")
	if got := p.Ask("alloc b 1"); got != "err 2" {
		c.T.Fatalf("pod %s gets a byte over its budget: %s\n%s\n%s", p.name, got, c.jobs(), c.state())
	}
	switch random.IntN(4) {
	case 0:
		if err := unix.Kill(c.programPID(p), unix.SIGKILL); err != nil {
			c.T.Error(err)
		}
	case 1:
		c.must("kubectl", "delete", "pod", "--wait=false", "--grace-period=0", "--force", p.name)
	case 2:
		c.must("kubectl", "delete", "pod", "--wait=false", p.name)
	}
}
