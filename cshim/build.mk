# SPDX-License-Identifier: Apache-2.0
# libgpuarb.so. Included by the top Makefile, and usable alone:
#   make -f cshim/build.mk BUILD=build shim

BUILD ?= build
SHIM_CFLAGS ?=
include tools/lines.mk

# The folders (README.md). core knows no driver and no loader, and the unit tests link it alone. hook
# answers look-ups of driver functions. memory accounts for memory in stream order, for any interface;
# of the interfaces cuda, nvml, opencl and vulkan only cuda has such memory.
SHIM_CORE := admit budget call codec connection device driver env environ host import inherit interface link lock log message objects os publish records root second_copy session slots table thread_slot wait
SHIM_HOOK := copies entries exports interfaces library loader preload resolve
SHIM_MEMORY := async blocks graph idle mapped pending pool sums
SHIM_CUDA := allocators array async context device driver graph graph_nodes green hooks host import limit memory pool primary query stream stream_order teardown thread_slot vmm
SHIM_NVML := hooks nvml
SHIM_OPENCL := call context device hooks image layer memory opencl query svm
SHIM_VULKAN := chain device hooks instance logical memory query
SHIM_UNITS := core/copy $(SHIM_CORE:%=core/%) $(SHIM_HOOK:%=hook/%) $(SHIM_MEMORY:%=memory/%) $(SHIM_CUDA:%=cuda/%) $(SHIM_NVML:%=nvml/%) $(SHIM_OPENCL:%=opencl/%) $(SHIM_VULKAN:%=vulkan/%)

# Headers are named with their folder: "core/root.h".
SHIM_INCLUDE := -iquote cshim
SHIM_FLAGS := $(SHIM_INCLUDE) -std=c11 -D_GNU_SOURCE -O2 -g -Wall -Wextra -Wconversion -Wshadow \
              -Wstrict-prototypes -Werror -fvisibility=hidden -fPIC -fno-semantic-interposition \
              -fno-stack-protector -ftls-model=initial-exec
# The compiler must not turn loops into calls of libc's functions, because programs replace these.
SHIM_FLAGS += $(if $(findstring clang,$(CC)),-fno-builtin,-fno-tree-loop-distribute-patterns)
# With gcc the whole library is optimised as one unit: that takes 4 ns off an alloc and free. The unit
# leaves out hook/entries and hook/preload, whose assembly names symbols of its own file, core/copy,
# whose functions the optimiser calls by itself, and hook/exports, which differs between the builds.
SHIM_LTO := $(if $(findstring clang,$(CC)),,-flto=auto -ffat-lto-objects)
# The names of sources in debug information do not depend on where the checkout is, so that each clone builds the same bytes.
SHIM_FLAGS += -ffile-prefix-map=$(CURDIR)=.
SHIM_DIR := $(BUILD)/cshim
SHIM_OBJECTS := $(SHIM_UNITS:%=$(SHIM_DIR)/%.o)
SHIM_ROWS := $(wildcard cshim/*/*.def)
SHIM_HEADERS := $(wildcard cshim/*/*.h) $(SHIM_ROWS)

# Manifest by which Vulkan's loader finds the library: in the build folder as an explicit layer, by
# VK_ADD_LAYER_PATH; installed as an implicit layer.
SHIM_LAYER := $(BUILD)/vulkan/gpuarb_layer.json

.PHONY: shim
shim: $(BUILD)/libgpuarb.so $(BUILD)/no-exports/libgpuarb.so $(SHIM_LAYER) $(BUILD)/no-exports/vulkan/gpuarb_layer.json $(BUILD)/gpuarb-probe

$(SHIM_LAYER) $(BUILD)/no-exports/vulkan/gpuarb_layer.json: cshim/vulkan/gpuarb_layer.json
	@mkdir -p $(@D)
	@cp $< $@

$(SHIM_DIR)/%.o: cshim/%.c $(SHIM_HEADERS) cshim/build.mk
	@mkdir -p $(@D)
	$(call line,CC,$<)$(CC) $(SHIM_FLAGS) $(if $(filter hook/entries hook/exports hook/preload core/copy,$*),,$(SHIM_LTO)) $(SHIM_CFLAGS) -c -o $@ $<

$(SHIM_DIR)/gpuarb.map: cshim/gpuarb.map.in $(SHIM_ROWS)
	@mkdir -p $(@D)
	$(call line,GEN,$@)$(CC) $(SHIM_INCLUDE) -E -P -x c -o $@ $<

# No start files: the library needs none, and each imported symbol costs time in every program that
# starts with the preload.
SHIM_LINK = $(SHIM_FLAGS) $(SHIM_LTO) -shared -nostartfiles -Wl,-soname,libgpuarb.so -Wl,-z,relro,-z,now,-z,noexecstack,-z,nodelete \
	  -Wl,-Bsymbolic-functions -Wl,--as-needed -Wl,--hash-style=gnu -Wl,-z,defs -Wl,--version-script
$(BUILD)/libgpuarb.so: $(SHIM_OBJECTS) $(SHIM_DIR)/gpuarb.map
	$(call line,LD,$@)$(CC) $(SHIM_LINK),$(SHIM_DIR)/gpuarb.map -o $@.new $(SHIM_OBJECTS)
	@mv $@.new $@ # programs that start meanwhile find the old library, never a part of the new one

# The library for `gpuarb run --no-exports`: the same objects, linked without exporting the driver functions.
$(SHIM_DIR)/without.map: cshim/gpuarb.map.in cshim/build.mk
	@mkdir -p $(@D)
	$(call line,GEN,$@)$(CC) -DGA_WITHOUT_EXPORTS -E -P -x c -o $@ $<

$(SHIM_DIR)/without.o: cshim/hook/exports.c cshim/hook/exports.h cshim/build.mk
	@mkdir -p $(@D)
	$(call line,CC,$@)$(CC) $(SHIM_FLAGS) $(SHIM_CFLAGS) -DGA_WITHOUT_EXPORTS -c -o $@ $<

SHIM_WITHOUT := $(filter-out $(SHIM_DIR)/hook/exports.o,$(SHIM_OBJECTS)) $(SHIM_DIR)/without.o
$(BUILD)/no-exports/libgpuarb.so: $(SHIM_WITHOUT) $(SHIM_DIR)/without.map
	@mkdir -p $(@D)
	$(call line,LD,$@)$(CC) $(SHIM_LINK),$(SHIM_DIR)/without.map -o $@.new $(SHIM_WITHOUT)
	@mv $@.new $@

# The probe is a separate program, which `gpuarb doctor` starts with the library preloaded.
$(BUILD)/gpuarb-probe: $(wildcard cshim/probe/*.[ch]) cshim/vulkan/vulkan.h cshim/core/os.h $(SHIM_ROWS) cshim/build.mk
	@mkdir -p $(@D)
	$(call line,LD,$@)$(CC) $(SHIM_INCLUDE) -std=c11 -D_GNU_SOURCE -O2 -g -Wall -Wextra -Wconversion -Wshadow -Wstrict-prototypes -Werror \
	  -ffile-prefix-map=$(CURDIR)=. -o $@ $(filter %.c,$^) -ldl

# Tests. The core is linked into each, so that sanitizers work without a preload. The folder of a
# program names its build: asan (with ubsan), tsan, or plain for the peer.
SHIM_TEST := $(BUILD)/cshim-test
SHIM_TEST_FLAGS := $(SHIM_INCLUDE) -std=c11 -D_GNU_SOURCE -O1 -g -Wall -Wextra -Wconversion -Wshadow \
                   -Wstrict-prototypes -Werror -pthread
SHIM_ASAN := -fsanitize=address,undefined -fno-sanitize-recover=all
SHIM_CORE_SOURCES := $(SHIM_CORE:%=cshim/core/%.c)
SHIM_TESTS := table_test credit_test env_test stress session_stress wait_test threads_test
SHIM_TEST_PROGRAMS := $(foreach kind,asan tsan,$(patsubst %,$(SHIM_TEST)/$(kind)/%,$(SHIM_TESTS)))

SHIM_DRIVER_TESTS := $(SHIM_TEST)/asan/async_stress $(SHIM_TEST)/tsan/async_stress $(SHIM_TEST)/asan/primary_test \
                     $(SHIM_TEST)/asan/pools_test $(SHIM_TEST)/asan/unrecorded_test $(SHIM_TEST)/asan/races_test $(SHIM_TEST)/tsan/races_test $(SHIM_TEST)/teardown_test

# Fuzz targets, with clang's libFuzzer. `make fuzz` runs them; cshim-test runs only their corpus.
SHIM_FUZZ := table resolve
SHIM_FUZZ_PROGRAMS := $(patsubst %,$(SHIM_TEST)/fuzz/%_fuzz,$(SHIM_FUZZ))
SHIM_FUZZ_FLAGS := $(filter-out -Wconversion,$(SHIM_TEST_FLAGS)) -fsanitize=fuzzer,address,undefined \
                   -fno-sanitize-recover=all

.PHONY: cshim-test-programs cshim-fuzz-programs cshim-test cshim-bench
cshim-test-programs: $(SHIM_TEST)/peer $(SHIM_TEST)/codec $(SHIM_TEST_PROGRAMS) $(SHIM_DRIVER_TESTS) cshim-fuzz-programs
cshim-fuzz-programs: $(SHIM_FUZZ_PROGRAMS)

cshim-test: cshim-test-programs shim
	@cshim/test/run.sh $(BUILD)

$(SHIM_TEST)/peer: cshim/test/peer.c cshim/core/wire.h cshim/build.mk
	@mkdir -p $(@D)
	$(call line,LD,$@)$(CC) $(filter-out -Wconversion,$(SHIM_TEST_FLAGS)) -o $@ $<

$(SHIM_TEST)/codec: cshim/test/codec.c cshim/core/codec.c cshim/core/codec.h cshim/core/wire.h cshim/build.mk
	@mkdir -p $(@D)
	$(call line,CC,$<)$(CC) $(SHIM_TEST_FLAGS) $(SHIM_ASAN) -o $@ $(filter %.c,$^)

# A source is compiled once for each sanitizer, and linked into several tests.
SHIM_TEST_UNITS := $(filter-out hook/preload core/copy,$(SHIM_UNITS))
$(SHIM_TEST)/asan/obj/%.o: SHIM_AS := $(SHIM_ASAN)
$(SHIM_TEST)/tsan/obj/%.o: SHIM_AS := -fsanitize=thread
$(foreach kind,asan tsan,$(SHIM_TEST_UNITS:%=$(SHIM_TEST)/$(kind)/obj/%.o)): $(SHIM_HEADERS) cshim/build.mk
$(SHIM_TEST)/asan/obj/%.o: cshim/%.c
	@mkdir -p $(@D)
	$(call line,CC,$@)$(CC) $(SHIM_TEST_FLAGS) $(SHIM_AS) -c -o $@ $<
$(SHIM_TEST)/tsan/obj/%.o: cshim/%.c
	@mkdir -p $(@D)
	$(call line,CC,$@)$(CC) $(SHIM_TEST_FLAGS) $(SHIM_AS) -c -o $@ $<

$(SHIM_TEST)/asan/%: cshim/test/%.c $(wildcard cshim/test/*.h) $(SHIM_HEADERS) cshim/build.mk $(SHIM_CORE:%=$(SHIM_TEST)/asan/obj/core/%.o)
	@mkdir -p $(@D)
	$(call line,LD,$@)$(CC) $(SHIM_TEST_FLAGS) $(SHIM_ASAN) -o $@ $(filter %.c %.o,$^)

$(SHIM_TEST)/tsan/%: cshim/test/%.c $(wildcard cshim/test/*.h) $(SHIM_HEADERS) cshim/build.mk $(SHIM_CORE:%=$(SHIM_TEST)/tsan/obj/core/%.o)
	@mkdir -p $(@D)
	$(call line,LD,$@)$(CC) $(SHIM_TEST_FLAGS) -fsanitize=thread -o $@ $(filter %.c %.o,$^)

# The whole library without preload.c, on the simulated driver.
SHIM_ALL_SOURCES := $(SHIM_TEST_UNITS:%=cshim/%.c)
SHIM_ASAN_TESTS := $(patsubst %,$(SHIM_TEST)/asan/%,async_stress primary_test pools_test races_test unrecorded_test)
SHIM_TSAN_TESTS := $(patsubst %,$(SHIM_TEST)/tsan/%,async_stress races_test)
$(SHIM_ASAN_TESTS): SHIM_AS := $(SHIM_ASAN)
$(SHIM_TSAN_TESTS): SHIM_AS := -fsanitize=thread
$(SHIM_TEST)/asan/primary_test: SHIM_WRAPS := -Wl,--wrap=ga_table_walk
$(SHIM_TEST)/asan/pools_test $(SHIM_TEST)/asan/unrecorded_test: SHIM_WRAPS := -Wl,--wrap=ga_root_alloc -Wl,--wrap=ga_table_put
$(SHIM_TEST)/asan/races_test $(SHIM_TEST)/tsan/races_test: SHIM_WRAPS := -Wl,--wrap=ga_os_sleep_us
$(SHIM_ASAN_TESTS): $(SHIM_TEST)/asan/%: cshim/test/%.c $(SHIM_TEST_UNITS:%=$(SHIM_TEST)/asan/obj/%.o)
$(SHIM_TSAN_TESTS): $(SHIM_TEST)/tsan/%: cshim/test/%.c $(SHIM_TEST_UNITS:%=$(SHIM_TEST)/tsan/obj/%.o)
# Unoptimised, so that both halves of a condition are separate basic blocks.
$(SHIM_TEST)/teardown_test: SHIM_AS := -O0 -fsanitize-coverage=trace-pc
$(SHIM_TEST)/teardown_test: cshim/test/teardown_test.c $(SHIM_ALL_SOURCES)
$(SHIM_DRIVER_TESTS): $(wildcard cshim/test/*.h) $(SHIM_HEADERS) cshim/build.mk $(BUILD)/sim/libcuda.so
	@mkdir -p $(@D)
	$(call line,LD,$@)$(CC) $(SHIM_TEST_FLAGS) -DDRIVER='"$(abspath $(BUILD)/sim/libcuda.so.1)"' $(SHIM_AS) $(SHIM_WRAPS) -o $@ $(filter %.c %.o,$^) -ldl

$(SHIM_TEST)/fuzz/table_fuzz: cshim/test/fuzz/table_fuzz.c cshim/core/table.c cshim/core/lock.c cshim/core/os.c $(SHIM_HEADERS) cshim/build.mk
	@mkdir -p $(@D)
	$(call line,LD,$@)clang $(SHIM_FUZZ_FLAGS) -o $@ $(filter %.c,$^)

# The whole library without preload.c, on a driver without locks.
$(SHIM_TEST)/fuzz/resolve_fuzz: cshim/test/fuzz/resolve_fuzz.c $(SHIM_ALL_SOURCES) $(SHIM_HEADERS) cshim/build.mk \
  $(BUILD)/sim/stub/libcuda.so
	@mkdir -p $(@D)
	$(call line,LD,$@)clang $(SHIM_FUZZ_FLAGS) -DDRIVER='"$(abspath $(BUILD)/sim/stub/libcuda.so.1)"' -o $@ $(filter %.c,$^) -ldl

cshim-bench: $(BUILD)/cshim-bench $(SHIM_TEST)/peer shim

$(BUILD)/cshim-bench: cshim/test/bench.c $(SHIM_HEADERS) $(SHIM_DIR)/core/table.o $(SHIM_DIR)/core/lock.o $(SHIM_DIR)/core/os.o
	$(call line,LD,$@)$(CC) $(SHIM_TEST_FLAGS) -O2 -o $@ $< $(SHIM_DIR)/core/table.o $(SHIM_DIR)/core/lock.o $(SHIM_DIR)/core/os.o -ldl
