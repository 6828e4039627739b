# The plug-ins for Kubernetes. They are a Go module of their own, so that the modules of Kubernetes stay out of the daemon's.
# kube/deploy, the Helm chart, and kube/e2e/*, the programs of a cluster, are further modules. Included by the top Makefile.

.PHONY: kube
kube: setup-build ## build the plug-ins for Kubernetes into build/kube/
	$(call line,GO,$(BUILD)/kube)CGO_ENABLED=0 $(GO) -C kube build -trimpath -o $(abspath $(BUILD))/kube/ ./cmd/...

.PHONY: test-kube
test-kube: setup-test ## budgets of containers by gpuarb-nri and gpuarb-dra; the tests take the part of the runtime and of the kubelet. Lints the chart
	@$(MAKE) --no-print-directory test-build kube
	$(GO) -C kube test -race -count=1 ./...
	$(GO) -C kube/deploy test -count=1 ./...

# The programs of a cluster. Without KUBE_PROGRAMS=/FOLDER, which has them from an earlier `make kube-programs KUBE_PROGRAMS=/FOLDER`, the
# test builds them into build/. That takes about twenty minutes on two processors, and some seconds if Go's cache has all of it.
KUBE_PROGRAMS ?=
CLUSTER = $(abspath $(or $(KUBE_PROGRAMS),$(BUILD)/kube/cluster))
KUBERNETES_VERSION = $(shell sed -n 's,^require k8s.io/kubernetes ,,p' kube/e2e/kubernetes/go.mod)

.PHONY: kube-programs
kube-programs: export CGO_ENABLED = 0
kube-programs: setup-build
	@mkdir -p $(CLUSTER)
	$(call line,GO,$(CLUSTER))$(GO) -C kube/e2e/containerd build -trimpath -ldflags '-s -w' -tags 'no_btrfs no_devmapper no_zfs' -o $(CLUSTER)/ \
		$(addprefix github.com/containerd/containerd/v2/cmd/,containerd containerd-shim-runc-v2 ctr)
	@for name in kubelet kube-apiserver kube-scheduler kube-controller-manager kubectl; do \
		$(GO) -C kube/e2e/kubernetes build -trimpath -ldflags '-s -w -X k8s.io/component-base/version.gitVersion=$(KUBERNETES_VERSION)' \
			-o $(CLUSTER)/ k8s.io/kubernetes/cmd/$$name || exit; done
	@$(GO) -C kube/e2e/etcd build -trimpath -ldflags '-s -w' -o $(CLUSTER)/ .
	@CGO_ENABLED=1 $(GO) -C kube/deploy build -o $(CLUSTER)/ ./render # as its tests are built

# A step of `make test-full`. RUN='TestFullCluster/(Install|Claims)' selects rows.
.PHONY: kube-full test-kube-e2e
kube-full: setup-full
	@$(MAKE) --no-print-directory test-build kube $(if $(KUBE_PROGRAMS),,kube-programs)
	GPUARB_TEST_KUBERNETES=$(CLUSTER) $(GO) -C kube test -tags full -race -count=1 -timeout 2h -v -run '$(or $(RUN),TestFull)' ./e2e
test-kube-e2e: kube-full ## the chart and pods with budgets in a whole Kubernetes, built from Go modules (KUBE_PROGRAMS=)
