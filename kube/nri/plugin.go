package nri

// This file answers the events of the runtime. adjust.go changes containers.

import (
	"context"
	"errors"
	"fmt"
	"log"
	"maps"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/kube/share"
)

// Plugin answers the events of a container runtime. The stub of NRI calls its methods, one at a time.
type Plugin struct {
	Sockets []string       // paths of the daemon's socket; the first that answers is used
	Edits   string         // path of the CDI specification with the files that a container gets
	Most    uint64         // most bytes of each GPU for an annotation alone; share.Unlimited: no maximum
	Cluster *share.Cluster // nil: only annotations name budgets
	Within  time.Duration  // longest time for one event

	mu sync.Mutex // guards unheld, which the events and hold use at the same time
	// IDs of the containers that ran when the plug-in connected. An event removes the ID when the container ends, and hold then stops its
	// attempts for that container. An ID stays when the job is open.
	unheld map[string]bool
}

// again is the time from one attempt of hold to the next.
const again = 5 * time.Second

// budget returns the budget of a container, or false if nothing names a budget.
func (p *Plugin) budget(ctx context.Context, pod *api.PodSandbox, c *api.Container) (share.Budget, bool, error) {
	var granted share.Granted
	if p.Cluster != nil && hasDevice(c) {
		var err error
		if granted, err = p.Cluster.Granted(ctx, pod.GetNamespace(), pod.GetName(), pod.GetUid(), c.GetName()); err != nil {
			return share.Budget{}, false, err
		}
	}
	return share.Compute(pod.GetAnnotations(), c.GetName(), granted, p.Most)
}

// name returns the name of a container's job.
func name(pod *api.PodSandbox, c *api.Container) string {
	return pod.GetNamespace() + "/" + pod.GetName() + "/" + c.GetName()
}

// CreateContainer gives a container with a budget the library.
func (p *Plugin) CreateContainer(ctx context.Context, pod *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	ctx, stop := context.WithTimeout(ctx, p.Within)
	defer stop()
	_, has, err := p.budget(ctx, pod, c)
	if err != nil || !has || bound(c) {
		return nil, nil, p.failed("create", pod, c, err)
	}
	spec, err := share.ReadSpec(p.Edits)
	if err != nil {
		return nil, nil, p.failed("create", pod, c, err)
	}
	return adjustment(spec.Edits), nil, nil
}

// StartContainer opens the job of a container whose cgroup exists and whose first process does not run yet. An error keeps the container
// from starting.
func (p *Plugin) StartContainer(ctx context.Context, pod *api.PodSandbox, c *api.Container) error {
	ctx, stop := context.WithTimeout(ctx, p.Within)
	defer stop()
	return p.failed("start", pod, c, p.open(ctx, pod, c))
}

// open opens the job of a container that has a budget. If a hook of a CDI device has opened the job, open sets the budget as the limit of
// the container's cgroup instead.
func (p *Plugin) open(ctx context.Context, pod *api.PodSandbox, c *api.Container) error {
	budget, has, err := p.budget(ctx, pod, c)
	if err != nil || !has {
		return err
	}
	client, err := ipc.DialAny(ctx, p.Sockets)
	if err != nil {
		return err
	}
	defer client.Close()
	cgroup := cgroupPath(c.GetLinux().GetCgroupsPath())
	if bound(c) {
		return client.SetCgroupLimit(ctx, cgroup, ipc.LimitRequest{Target: ipc.LimitCgroup, Set: ipc.SetMax, Device: ipc.AllDevices, Max: budget.Bytes})
	}
	binding := ipc.Binding{Cgroup: cgroup, Name: name(pod, c), Container: c.GetId(), Memory: budget.Bytes}
	_, err = client.OpenBinding(ctx, binding, nil)
	if errors.Is(err, ipc.StatusRange) { // an earlier plug-in with another --max may have opened the job with another budget
		if _, closing := client.CloseContainer(ctx, c.GetId()); closing == nil {
			_, err = client.OpenBinding(ctx, binding, nil)
		}
	}
	if err == nil {
		log.Printf("%s is held to %d bytes of each GPU (%s)", binding.Name, budget.Bytes, budget.Text)
	}
	return err
}

// StopContainer closes the job of a container whose processes have ended.
func (p *Plugin) StopContainer(ctx context.Context, pod *api.PodSandbox, c *api.Container) ([]*api.ContainerUpdate, error) {
	return nil, p.RemoveContainer(ctx, pod, c)
}

// RemoveContainer closes the job of a container, if it still has one.
func (p *Plugin) RemoveContainer(ctx context.Context, pod *api.PodSandbox, c *api.Container) error {
	ctx, stop := context.WithTimeout(ctx, p.Within)
	defer stop()
	p.mu.Lock()
	delete(p.unheld, c.GetId())
	p.mu.Unlock()
	client, err := ipc.DialAny(ctx, p.Sockets)
	if err != nil {
		log.Printf("%s: its job stays open until its cgroup is gone: %v", name(pod, c), err)
		return nil
	}
	defer client.Close()
	account, err := client.CloseContainer(ctx, c.GetId())
	switch {
	case err == nil:
		log.Printf("%s: %s", name(pod, c), account)
	case !errors.Is(err, ipc.StatusNoSession):
		log.Printf("%s: its job stays open until its cgroup is gone: %v", name(pod, c), err)
	}
	return nil
}

// Synchronize starts to open the jobs of containers that run already. The runtime calls it when the plug-in connects. Synchronize returns
// at once, and hold opens the jobs, because many jobs can take longer than the runtime waits for an answer. The runtime would then
// disconnect the plug-in.
func (p *Plugin) Synchronize(_ context.Context, pods []*api.PodSandbox, containers []*api.Container) ([]*api.ContainerUpdate, error) {
	of := make(map[string]*api.PodSandbox, len(pods))
	for _, pod := range pods {
		of[pod.GetId()] = pod
	}
	running := map[*api.Container]*api.PodSandbox{}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unheld = map[string]bool{}
	for _, c := range containers {
		if pod := of[c.GetPodSandboxId()]; pod != nil && c.GetState() == api.ContainerState_CONTAINER_RUNNING {
			running[c] = pod
			p.unheld[c.GetId()] = true
		}
	}
	go p.hold(running)
	return nil, nil
}

// hold opens the jobs of running containers. Each attempt to open a job may take as long as one event. Jobs that could not be opened are
// tried again, until they are open or their containers have ended. The reason of a failure is logged if it differs from the last reason
// for the container.
func (p *Plugin) hold(running map[*api.Container]*api.PodSandbox) {
	said := map[*api.Container]string{}
	for ; len(running) > 0; time.Sleep(again) {
		for c, pod := range maps.Clone(running) {
			p.mu.Lock()
			wanted := p.unheld[c.GetId()]
			p.mu.Unlock()
			if !wanted {
				delete(running, c)
				continue
			}
			ctx, stop := context.WithTimeout(context.Background(), p.Within)
			err := p.open(ctx, pod, c)
			stop()
			if err == nil {
				delete(running, c)
			} else if text := err.Error(); text != said[c] {
				log.Printf("%s runs and is not held to a budget: %s", name(pod, c), text)
				said[c] = text
			}
		}
	}
}

// failed adds to an error what was tried, and logs it.
func (p *Plugin) failed(what string, pod *api.PodSandbox, c *api.Container, err error) error {
	if err == nil {
		return nil
	}
	err = fmt.Errorf("gpuarb: cannot %s %s: %w", what, name(pod, c), err)
	log.Print(err)
	return err
}
