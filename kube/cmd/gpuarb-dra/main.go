// Command gpuarb-dra offers the GPUs of a Kubernetes node to the scheduler, which gives each claim a share of the memory of a GPU. The
// daemon gpuarbd then holds each claim to its share. This file reads the flags, connects to the kubelet and ends on a signal. Package dra
// is the driver.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/kube/dra"
	"github.com/gpuarb/gpuarb/kube/share"
)

// options has the values of the flags, as the administrator wrote them.
type options struct {
	socket, node, kubeconfig, edits, folder, kubelet, gpu, most string
	shares                                                      int
}

// flags reads the command line. If a flag cannot be parsed, it prints the usage and ends the program. driver checks the values.
func flags() (o options) {
	host, _ := os.Hostname()
	node := os.Getenv("NODE_NAME")
	if node == "" {
		node = strings.ToLower(host)
	}
	flag.StringVar(&o.socket, "socket", "", "socket of gpuarbd; default: where the daemon's service has it")
	flag.StringVar(&o.node, "node-name", node, "name of this node in the cluster; default: NODE_NAME, or the host's name")
	flag.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig file of the API server; default: that of the pod in which this runs")
	flag.StringVar(&o.edits, "cdi", "/etc/cdi/gpuarb.json", "file that `gpuarb cdi generate` wrote")
	flag.StringVar(&o.folder, "cdi-dir", "/var/run/cdi", "folder for the CDI files of claims, which the container runtime reads")
	flag.StringVar(&o.kubelet, "kubelet-dir", "/var/lib/kubelet", "folder of the kubelet")
	flag.StringVar(&o.gpu, "gpu", "nvidia.com/gpu={uuid}", "CDI device that makes a GPU visible, with {uuid} or {index} in it; none: no device")
	flag.IntVar(&o.shares, "expected-shares", 8, "most shares of a GPU; room for one context of each is left")
	flag.StringVar(&o.most, "max", "", "most memory of a GPU for one request, such as 4Gi; default: all")
	flag.Parse()
	return o
}

// driver returns the driver that the flags describe. It returns an error if a value is wrong, or if the CDI specification of the node
// cannot be used.
func (o *options) driver() (*dra.Driver, error) {
	d := &dra.Driver{Sockets: ipc.FindSocket(os.Getenv, os.Getuid()), Edits: o.edits, Folder: o.folder, GPU: o.gpu, Shares: o.shares, Most: share.Unlimited, Node: o.node}
	if o.socket != "" {
		d.Sockets = []string{o.socket}
	}
	if o.gpu == "none" {
		d.GPU = ""
	}
	if o.shares < 1 {
		return nil, fmt.Errorf("--expected-shares %d: at least one share is needed", o.shares)
	}
	if o.most != "" {
		var err error
		if d.Most, err = share.Bytes(o.most); err != nil {
			return nil, fmt.Errorf("--max: %w", err)
		}
	}
	spec, err := share.ReadSpec(o.edits)
	if err == nil {
		_, err = spec.Hooks()
	}
	return d, err
}

// client returns a client of the API server. The client connects at its first request.
func (o *options) client() (kubernetes.Interface, error) {
	var config *rest.Config
	var err error
	if o.kubeconfig == "" {
		if config, err = rest.InClusterConfig(); err != nil {
			return nil, fmt.Errorf("%w: outside a pod, give --kubeconfig FILE", err)
		}
	} else if config, err = clientcmd.BuildConfigFromFlags("", o.kubeconfig); err != nil {
		return nil, fmt.Errorf("--kubeconfig %s: %w", o.kubeconfig, err)
	}
	config.QPS, config.Burst = 50, 200 // enough for the start of a node, when the kubelet prepares the claims of all its pods at once
	return kubernetes.NewForConfig(config)
}

// tellAbsent says in the log that the API server does not answer, once, and that it does, later. It ends with the first answer; a refusal
// is an answer. Without tellAbsent nothing would be said: the library that publishes the GPUs waits for the API server in silence.
func tellAbsent(ctx context.Context, client kubernetes.Interface) {
	for told := false; ctx.Err() == nil; told = true {
		_, err := client.Discovery().ServerVersion()
		var refusal apierrors.APIStatus
		if err == nil || errors.As(err, &refusal) {
			if told {
				log.Print("the API server answers")
			}
			return
		}
		if !told {
			log.Printf("the API server does not answer, so that no GPU is offered yet: %v", err)
		}
		select {
		case <-time.After(5 * time.Second):
		case <-ctx.Done():
		}
	}
}

// run registers the driver with the kubelet, and publishes the GPUs until a signal or an error ends it. It returns nil after SIGTERM or
// SIGINT.
func run() error {
	o := flags()
	if flag.NArg() > 0 {
		return fmt.Errorf("no arguments are expected: %s", strings.Join(flag.Args(), " "))
	}
	d, err := o.driver()
	if err != nil {
		return err
	}
	client, err := o.client()
	if err != nil {
		return err
	}
	registry, data := filepath.Join(o.kubelet, "plugins_registry"), filepath.Join(o.kubelet, "plugins", share.Driver)
	for _, folder := range []string{o.folder, registry, data} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
	}
	stopped, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	ctx, end := context.WithCancelCause(stopped)
	d.Fatal = end
	go tellAbsent(ctx, client)
	helper, err := kubeletplugin.Start(ctx, d, kubeletplugin.DriverName(share.Driver), kubeletplugin.NodeName(o.node), kubeletplugin.KubeClient(client),
		kubeletplugin.RegistrarDirectoryPath(registry), kubeletplugin.PluginDataDirectoryPath(data))
	if err != nil {
		return err
	}
	defer helper.Stop()
	err = d.Publish(ctx, helper)
	switch {
	case stopped.Err() != nil:
		return nil
	case err != nil:
		return err
	}
	return context.Cause(ctx)
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("gpuarb-dra: ")
	if err := run(); err != nil {
		log.Fatal(err)
	}
}
