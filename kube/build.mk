# The plug-ins for Kubernetes. They are a Go module of their own, so that the modules of Kubernetes stay out of the daemon's.
# kube/deploy, the Helm chart, is a further module. Included by the top Makefile.

.PHONY: kube
kube: setup-build ## build the plug-ins for Kubernetes into build/kube/
	$(call line,GO,$(BUILD)/kube)CGO_ENABLED=0 $(GO) -C kube build -trimpath -o $(abspath $(BUILD))/kube/ ./cmd/...

.PHONY: test-kube
test-kube: setup-test ## budgets of containers by gpuarb-nri and gpuarb-dra; the tests take the part of the runtime and of the kubelet. Lints the chart
	@$(MAKE) --no-print-directory test-build kube
	$(GO) -C kube test -race -count=1 ./...
	$(GO) -C kube/deploy test -count=1 ./...
