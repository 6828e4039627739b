// Command gpuarb-nri holds the containers of a Kubernetes node to their budgets, whatever gave them a GPU. It is a plug-in of the container
// runtime (package nri).
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/nri/pkg/stub"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/kube/nri"
	"github.com/gpuarb/gpuarb/kube/share"
)

// options are the flags of the command.
type options struct {
	runtime, index, socket, edits, most, api string
	units                                    []share.Unit
	within                                   time.Duration
}

// flags reads the command line. It exits if a flag is wrong.
func flags() (o options) {
	flag.StringVar(&o.runtime, "runtime", "/var/run/nri/nri.sock", "socket of the runtime's plug-ins")
	flag.StringVar(&o.index, "index", "50", "place among the runtime's plug-ins, two digits")
	flag.StringVar(&o.socket, "socket", "", "socket of gpuarbd; default: where the daemon's service has it")
	flag.StringVar(&o.edits, "cdi", "/etc/cdi/gpuarb.json", "file that `gpuarb cdi generate` wrote")
	flag.StringVar(&o.most, "max", "", "most memory that an annotation alone gives, such as 4Gi; default: no maximum")
	flag.StringVar(&o.api, "api", "cluster", "API server: cluster (this pod's), none, or a kubeconfig file")
	flag.DurationVar(&o.within, "within", 1500*time.Millisecond, "longest time for one event; the runtime's own limit is 2 s by default")
	flag.Func("resource", "resource that stands for GPU memory, such as nvidia.com/gpumem=1Mi (HAMi) or gpu-memory=1Mi (KAI); can be repeated", func(text string) error {
		unit, err := share.ParseUnit(text)
		o.units = append(o.units, unit)
		return err
	})
	flag.Parse()
	return o
}

// cluster returns a client of the API server; nil: --api is none. It does not connect yet.
func (o *options) cluster() (*share.Cluster, error) {
	var config *rest.Config
	var err error
	switch o.api {
	case "none":
		return nil, nil
	case "cluster":
		config, err = rest.InClusterConfig()
	default:
		config, err = clientcmd.BuildConfigFromFlags("", o.api)
	}
	if err != nil {
		return nil, fmt.Errorf("--api %s: %w", o.api, err)
	}
	config.QPS = -1 // no limit: a delay would use up the short time of an event. Few requests run at once.
	client, err := kubernetes.NewForConfig(config)
	return &share.Cluster{Client: client, Units: o.units}, err
}

// run connects the plug-in to the runtime, and returns when a signal ends it.
func run() error {
	o := flags()
	if flag.NArg() > 0 {
		return fmt.Errorf("no arguments are expected: %s", strings.Join(flag.Args(), " "))
	}
	p := &nri.Plugin{Sockets: ipc.FindSocket(os.Getenv, os.Getuid()), Edits: o.edits, Most: share.Unlimited, Within: o.within}
	if o.socket != "" {
		p.Sockets = []string{o.socket}
	}
	var err error
	if o.most != "" {
		if p.Most, err = share.Bytes(o.most); err != nil {
			return fmt.Errorf("--max: %w", err)
		}
	}
	if p.Cluster, err = o.cluster(); err != nil {
		return err
	}
	if _, err := share.ReadSpec(o.edits); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	log.Print("a container that is made while this plug-in is away runs without a budget, unless the runtime's validator lists \"gpuarb\" as required")
	return p.Serve(ctx, stub.WithPluginName("gpuarb"), stub.WithPluginIdx(o.index), stub.WithSocketPath(o.runtime))
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("gpuarb-nri: ")
	if err := run(); err != nil {
		log.Fatal(err)
	}
}
