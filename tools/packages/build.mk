# SPDX-License-Identifier: Apache-2.0
# Builds nfpm, which writes the packages. It is a tool of a Go module of its own, in this folder, so that its
# modules stay out of gpuarb's.

BUILD ?= build
GO ?= go
include tools/lines.mk

$(BUILD)/tools/nfpm: tools/packages/go.mod tools/packages/go.sum
	$(call line,GO,$@)CGO_ENABLED=0 $(GO) build -C tools/packages -trimpath -o $(abspath $@) github.com/goreleaser/nfpm/v2/cmd/nfpm
