# Runs the tests that drive the daemon from outside against a daemon with the race detector, which
# ends at the first data race and so fails the test. Included by the top Makefile.

$(BUILD)/raced/gpuarbd: FORCE
	$(call line,GO,$@)$(GO) build -race -trimpath -o $@ ./cmd/gpuarbd

.PHONY: raced-full
raced-full: test-build $(BUILD)/raced/gpuarbd
	GPUARBD=$(abspath $(BUILD)/raced/gpuarbd) GORACE=halt_on_error=1 GPUARB_TEST_PATIENCE=$(or $(GPUARB_TEST_PATIENCE),60s) \
		$(GO) test -count=1 -timeout 60m -p 1 ./tests/e2e ./tests/arbitration ./tests/attack ./tests/conformance ./tests/stress
