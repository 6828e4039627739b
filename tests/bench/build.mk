# SPDX-License-Identifier: Apache-2.0
# The C programs of the benchmarks: build/bench/.

BUILD ?= build
include tools/lines.mk
BENCH_SRC := tests/bench/client
BENCH_OUT := $(BUILD)/bench
BENCH_CFLAGS := -std=c11 -D_GNU_SOURCE -O2 -g -Wall -Wextra -Wconversion -Wshadow \
                -Wstrict-prototypes -Werror -iquote cshim

.PHONY: bench-programs
bench-programs: $(BENCH_OUT)/ask $(BENCH_OUT)/crowd $(BENCH_OUT)/spawn $(BENCH_OUT)/empty.so

$(BENCH_OUT)/ask $(BENCH_OUT)/crowd: $(BENCH_OUT)/%: $(BENCH_SRC)/%.c $(BENCH_SRC)/link.c $(BENCH_SRC)/link.h cshim/core/wire.h tests/bench/build.mk
	@mkdir -p $(@D)
	$(call line,LD,$@)$(CC) $(BENCH_CFLAGS) -o $@ $< $(BENCH_SRC)/link.c

$(BENCH_OUT)/spawn: $(BENCH_SRC)/spawn.c tests/bench/build.mk
	@mkdir -p $(@D)
	$(call line,LD,$@)$(CC) $(BENCH_CFLAGS) -o $@ $<

# Linked without start files, like the shim.
$(BENCH_OUT)/empty.so: $(BENCH_SRC)/empty.c tests/bench/build.mk
	@mkdir -p $(@D)
	$(call line,LD,$@)$(CC) $(BENCH_CFLAGS) -fPIC -shared -nostartfiles -nostdlib -Wl,--hash-style=gnu -Wl,-z,noexecstack -o $@ $<
