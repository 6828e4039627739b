# gpuarb: build, checks, installation. `make help` lists the targets.
#
# The C parts have their own rules in fragments. A fragment may use the variables of this file (BUILD, CC,
# PYTHON), and `line` of tools/lines.mk, which prints one line for each built file (V=1: the whole
# commands):
#   cshim/build.mk            target shim
#   tests/simcuda/build.mk    target sim
#   tests/programs/build.mk   target programs
#   tests/bench/build.mk      target bench-programs
#   tests/upgrade/build.mk    target previous
#   tests/machines/build.mk   other machines
#   slurm/build.mk            targets slurm, test-slurm
#   kube/build.mk             targets kube, test-kube, test-kube-e2e
#   tools/packages/build.mk   the program that writes packages
# `make test`, `make bench` and `make test-full` run the fragments' targets NAME-test, NAME-bench and
# NAME-full. All built files lie under build/.

SHELL := /bin/bash
.DELETE_ON_ERROR:
.DEFAULT_GOAL := all

BUILD := build
GO ?= go
# The distribution's Python has numba. Another Python, earlier in PATH, may lack it.
PYTHON ?= /usr/bin/python3
ifeq ($(origin CC),default)
CC := gcc
endif

# The version is that of the nearest tag, or without a tag that of internal/version/. It is set by -ldflags.
# Go's own stamping (-buildvcs) is off, because it fails if the checkout belongs to another user.
VERSION ?= $(shell git describe --tags --dirty 2>/dev/null | sed 's/^v//')
LDFLAGS = $(if $(VERSION),-X github.com/gpuarb/gpuarb/internal/version.Version=$(VERSION))
GOBUILD = $(GO) build -trimpath -ldflags '$(LDFLAGS)'
# The time in what is built, in seconds: that of the commit, so that each clone builds the same bytes.
EPOCH := $(or $(SOURCE_DATE_EPOCH),$(shell git log -1 --format=%ct 2>/dev/null))
export GOFLAGS := $(strip -buildvcs=false $(GOFLAGS))
# NVIDIA's binding of NVML declares functions that NVIDIA calls deprecated.
export CGO_CFLAGS := $(strip -O2 -g -Wno-deprecated-declarations $(CGO_CFLAGS))
export PYTHON

PREFIX ?= /usr/local
SYSCONFDIR ?= /etc
DESTDIR ?=

include tools/lines.mk
FRAGMENTS := cshim/build.mk tests/simcuda/build.mk tests/programs/build.mk tests/bench/build.mk \
             tests/rig/build.mk tests/upgrade/build.mk tests/machines/build.mk tools/packages/build.mk slurm/build.mk kube/build.mk
C_TESTS := $(shell sed -n 's/^\([a-z-]*-test\):.*/\1/p' $(FRAGMENTS))
FULL_STEPS := $(shell sed -n 's/^\([a-z-]*-full\):.*/\1/p' $(FRAGMENTS))
C_BENCHES := $(shell sed -n 's/^\([a-z-]*-bench\):.*/\1/p' $(FRAGMENTS))

.PHONY: all build
all: build ## build gpuarbd, gpuarb, libgpuarb.so and the simulated driver into build/
build: $(BUILD)/gpuarbd $(BUILD)/gpuarb share shim sim

# `go build` finds out itself which files are out of date. This target first checks that Go is installed.
.PHONY: FORCE
FORCE:
	@GO='$(GO)' tools/setup.sh go

# All users must be able to execute the daemon, whatever the umask: the process that serves the page runs
# this program as another user.
$(BUILD)/gpuarbd: FORCE
	$(call line,GO,$@)$(GOBUILD) -o $@ ./cmd/gpuarbd && chmod a+rx $@

# Static, with Go's own look-ups of users and names (netgo, osusergo), because the command must run in any
# container and on any libc. The C code in cmd/gpuarb/spawn/ runs before Go's runtime starts.
$(BUILD)/gpuarb: LDFLAGS += -linkmode external -extldflags -static
$(BUILD)/gpuarb: FORCE
	$(call line,GO,$@)CGO_ENABLED=1 CC='$(CC)' $(GOBUILD) -tags netgo,osusergo -o $@ ./cmd/gpuarb

# The binaries write their own manual pages and completions, from the texts of their help.
.PHONY: share
share: export SOURCE_DATE_EPOCH := $(EPOCH)
share: $(BUILD)/gpuarbd $(BUILD)/gpuarb
	$(call line,MAN,$(BUILD)/share)rm -rf $(BUILD)/share && $(BUILD)/gpuarb write-share $(BUILD)/share docs && $(BUILD)/gpuarbd --write-share $(BUILD)/share

# A daemon with fault points, at which tests make it die.
$(BUILD)/faults/gpuarbd: FORCE
	$(call line,GO,$@)$(GOBUILD) -tags faults -o $@ ./cmd/gpuarbd

$(BUILD)/tools/testsum: FORCE
	$(call line,GO,$@)CGO_ENABLED=0 $(GO) build -o $@ ./tools/testsum

include $(FRAGMENTS)

.PHONY: generate
generate: ## write the generated sources again (cshim/core/wire.h, tables of docs/reference/protocol.md)
	$(GO) run ./ipc/genlayout -i ipc/layout.go -o cshim/core/wire.h -page docs/reference/protocol.md

.PHONY: setup-%
setup-%:
	@tools/setup.sh $*

# The programs that the tests and the demonstration run.
.PHONY: test-build
test-build: build programs bench-programs $(BUILD)/faults/gpuarbd

.PHONY: demo
demo: setup-demo ## show two programs share one GPU, the machine's or a simulated one
	@MAKE='$(MAKE)' tests/demo/demo.sh

.PHONY: playground
playground: setup-demo ## open a shell with a daemon on two simulated GPUs, to try things in
	@MAKE='$(MAKE)' tests/demo/playground.sh

# PKG=./arbiter/... runs only the Go tests of those packages.
.PHONY: test
test: setup-test ## build everything and run all tests; ends in "N passed, N failed, N skipped"
	@$(MAKE) -j$(shell nproc) --no-print-directory test-build previous kube $(BUILD)/tools/testsum
	@GO='$(GO)' MAKE='$(MAKE)' C_TESTS='$(C_TESTS)' tools/test.sh $(PKG)

# RUN=TestFullKill selects Go tests by name.
.PHONY: test-full
test-full: setup-full ## run the tests that take long, and print their times; PKG= as with test
	@$(MAKE) --no-print-directory test-build previous $(BUILD)/tools/testsum
	@GO='$(GO)' MAKE='$(MAKE)' FULL_STEPS='$(FULL_STEPS)' RUN='$(or $(RUN),TestFull)' tools/test-full.sh $(PKG)

# A part of test-full.
.PHONY: test-systemd
test-systemd: ## the service in a Debian 12 that systemd has booted, through restart, SIGKILL, upgrade
	@$(MAKE) --no-print-directory test-full PKG=./tests/systemd

.PHONY: test-containers
test-containers: ## containers of podman and docker under their budgets, with the time of each test
	@$(MAKE) --no-print-directory test-full PKG=./tests/containers

# FOR=20m sets the duration; SEED=2 chooses the faults and their times.
.PHONY: soak
soak: setup-test ## run fifty programs with a fault every few seconds; a line of figures a minute (FOR=2m)
	@$(MAKE) --no-print-directory test-build
	@$(GO) test -tags soak -count=1 -timeout 0 -v -run '^TestSoak$$' ./tests/soak -soak.for='$(or $(FOR),2m)' -soak.seed='$(or $(SEED),1)'

.PHONY: test-gpu
test-gpu: setup-build ## run the tests that need a real GPU; without a GPU, print that and succeed
	@$(MAKE) --no-print-directory build $(PROGRAMS_OF_THE_DRIVER) $(BUILD)/programs/copies $(BUILD)/sim/toolkit/libcuda.so $(BUILD)/tools/testsum
	@GO='$(GO)' tools/test-gpu.sh

# Both targets fetch the vendor's libraries into build/ and print which ones they got.
.PHONY: test-libcuda test-cudart
test-libcuda: setup-build ## test the resolver with every libcuda.so.1 of Debian's archive
	@$(MAKE) --no-print-directory shim
	@GO='$(GO)' tools/test-libcuda.sh $(BUILD)/libcuda
test-cudart: setup-build ## compare what every CUDA runtime of Debian's archive gets with and without the shim
	@$(MAKE) --no-print-directory shim
	@GO='$(GO)' tools/test-cudart.sh $(BUILD)/libcudart $(BUILD)/libcuda

# No other target runs these two: they need tools that an ordinary machine lacks, and print which.
.PHONY: test-bullseye test-arm64
test-bullseye: setup-build ## load and run the shim in a Debian 11 root (root, debootstrap)
	@$(MAKE) --no-print-directory build
	@GO='$(GO)' tools/test-bullseye.sh $(BUILD)/bullseye
test-arm64: setup-build ## build the shim for aarch64 and run it in an emulator (qemu-user)
	@tools/test-arm64.sh $(BUILD)/arm64

.PHONY: fuzz
fuzz: setup-test ## run each fuzz target for a while (FUZZTIME=10s)
	@$(MAKE) --no-print-directory build cshim-fuzz-programs $(BUILD)/cshim-test/codec
	@GO='$(GO)' FUZZTIME='$(or $(FUZZTIME),10s)' tools/fuzz.sh $(SHIM_FUZZ_PROGRAMS)

# BENCH=regexp selects by name; COUNT=10 repeats for benchstat.
.PHONY: bench
bench: setup-build ## run all benchmarks; benchstat reads what it keeps in build/bench.txt
	@$(MAKE) --no-print-directory test-build
	@GO='$(GO)' MAKE='$(MAKE)' BENCH='$(or $(BENCH),.)' COUNT='$(or $(COUNT),1)' \
		C_BENCHES='$(C_BENCHES)' tools/bench.sh

.PHONY: pictures
pictures: setup-test test-build ## draw docs/pictures again: screens of top from its golden files, and the page after some minutes
	@mkdir -p docs/pictures $(BUILD)/pictures
	@GPUARB_TEST_PICTURES=$(abspath $(BUILD))/pictures $(GO) test -tags full ./tests/web -run TestFullLooks -count=1 -web.busy=4m
	@cp $(BUILD)/pictures/light-1440.png docs/pictures/page.png
	@cp $(BUILD)/pictures/dark-1440.png docs/pictures/page-dark.png
	@cp $(BUILD)/pictures/light-360.png docs/pictures/page-narrow.png
	@set -e; for screen in cmd/gpuarb/top/testdata/picture-*.txt; do \
		name=$${screen##*/picture-}; $(GO) run ./tools/picture <$$screen >docs/pictures/$${name%.txt}.svg; done

# AT=COMMIT measures another commit. LIST=yes prints the functions that run for a granted allocation.
.PHONY: shape
shape: setup-build ## count lines of code, cycles of files, and the functions that run for a granted allocation
	@$(GO) run ./tools/shape $(if $(AT),-at $(AT)) $(if $(LIST),-list)

# MUTANTS=B2,C3 runs only those rows.
.PHONY: mutants
mutants: setup-test ## apply each tests/mutants/*.patch in turn: its test must fail
	@GO='$(GO)' MAKE='$(MAKE)' MUTANTS='$(MUTANTS)' tests/mutants/run.sh

# ONLY=step runs one step; an unknown name prints the list of steps.
.PHONY: lint lint-fast
lint: setup-lint ## run all static checks; a missing tool fails
	@GO='$(GO)' tools/lint.sh $(ONLY)
lint-fast: setup-lint ## run the checks that take a few seconds (for a pre-commit hook)
	@GO='$(GO)' tools/lint.sh gofmt vet clang-format shellcheck

.PHONY: install uninstall
install: ## install what `make` built (DESTDIR=, PREFIX=/usr/local, SYSCONFDIR=/etc)
	@DESTDIR='$(DESTDIR)' PREFIX='$(PREFIX)' SYSCONFDIR='$(SYSCONFDIR)' tools/install.sh $(BUILD)
uninstall: ## remove what `make install` installed, except the configuration
	@DESTDIR='$(DESTDIR)' PREFIX='$(PREFIX)' SYSCONFDIR='$(SYSCONFDIR)' tools/install.sh --remove

# PACKAGES=gpuarb builds one of them. gpuarb-slurm needs the headers of Slurm.
PACKAGES ?= gpuarb gpuarb-slurm gpuarb-kube
.PHONY: packages
packages: setup-build build $(patsubst gpuarb-%,%,$(filter gpuarb-%,$(PACKAGES))) $(BUILD)/tools/nfpm ## write packages for Debian and for distributions with rpm into build/packages/
	@SOURCE_DATE_EPOCH='$(EPOCH)' GO='$(GO)' CC='$(CC)' VERSION='$(VERSION)' tools/packages/build.sh $(BUILD) $(BUILD)/packages $(PACKAGES)

# VERSION=0.2.0 names another version than that of the nearest tag.
.PHONY: release
release: packages ## build what a release has into build/release/: packages, bill of materials, source, checksums
	@SOURCE_DATE_EPOCH='$(EPOCH)' tools/packages/release.sh $(BUILD)/packages $(BUILD)/release

# PODMAN="podman --root /FOLDER" keeps the image elsewhere.
.PHONY: image
image: setup-image ## make the image of the daemon for podman (root; no registry)
	@$(MAKE) --no-print-directory packages PACKAGES='gpuarb gpuarb-kube'
	@SOURCE_DATE_EPOCH='$(EPOCH)' GO='$(GO)' PODMAN='$(PODMAN)' tools/image/build.sh $(BUILD)

.PHONY: clean
clean: ## remove build/
	rm -rf $(BUILD)

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-13s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
