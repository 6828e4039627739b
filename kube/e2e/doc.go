// Package e2e installs gpuarb's chart in a whole Kubernetes and runs pods with budgets there. The cluster has etcd, API server, scheduler,
// controller manager, kubelet and containerd, on one node with the simulated driver. The oracle is the simulated driver's count of what
// programs hold, which knows neither pods nor budgets.
//
// `make test-kube-e2e` builds all programs from Go modules and runs the test; `make test-full` runs it too. The folders etcd, containerd and
// kubernetes are Go modules that pin what is built. Helm's own packages
// render the chart (kube/deploy).
//
// The test has rows. Rows about the chart are in chart_full_test.go, and rows about pods are in pods_full_test.go. The cluster is started and
// ended in cluster_full_test.go, with the settings in settings_full_test.go and the container images of image_full_test.go. The test program
// is run in pods by pod_full_test.go.
package e2e
