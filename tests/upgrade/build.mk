# SPDX-License-Identifier: Apache-2.0
# Builds the previous version into build/previous/, for the tests of an upgrade.

BUILD ?= build
include tools/lines.mk

.PHONY: previous
previous: $(BUILD)/previous/libgpuarb.so

$(BUILD)/previous/libgpuarb.so: tests/upgrade/previous tests/upgrade/build.sh
	$(call line,MAKE,$(@D))tests/upgrade/build.sh "$$(cat tests/upgrade/previous)" $(@D)
	@touch $@
