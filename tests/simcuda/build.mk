# SPDX-License-Identifier: Apache-2.0
#
# The simulated driver: `make sim`, or alone: make -f tests/simcuda/build.mk BUILD=build sim

BUILD ?= build
CC ?= cc
include tools/lines.mk

SIM_SRC := tests/simcuda
SIM_OUT := $(BUILD)/sim
SIM_OBJ := $(BUILD)/obj/simcuda
SIM_CFLAGS := -std=c11 -D_GNU_SOURCE -O2 -g -Wall -Wextra -Wconversion -Wshadow \
	-Wstrict-prototypes -Werror -fvisibility=hidden -fPIC -pthread \
	-I$(SIM_SRC)/shared -I$(SIM_SRC)/driver -I$(SIM_SRC)/nvml
SIM_LDFLAGS := -shared -pthread -Wl,-z,relro -Wl,-z,now -Wl,--no-undefined

# As in the real libraries, the driver calls its own functions directly, and NVML calls its own
# through the global scope.
SIM_SYMBOLIC = $(if $(findstring libcuda,$@),-Wl$(comma)-Bsymbolic)
comma := ,

# The objects of one folder.
sim_objects = $(patsubst $(SIM_SRC)/%.c,$(SIM_OBJ)/%.o,$(sort $(wildcard $(SIM_SRC)/$(1)/*.c)))

SIM_SHARED := $(call sim_objects,shared)
SIM_DRIVER := $(call sim_objects,driver)
SIM_NVML := $(call sim_objects,nvml)
SIM_STUB := $(call sim_objects,stub) $(SIM_OBJ)/driver/resolve.o
SIM_RESOLVE := $(SIM_OBJ)/gen/resolve_table.o
SIM_TESTS := $(patsubst $(SIM_SRC)/test/%.c,$(SIM_OUT)/test/%,$(wildcard $(SIM_SRC)/test/*.c))

.PHONY: sim
sim: $(SIM_OUT)/libcuda.so $(SIM_OUT)/libnvidia-ml.so $(SIM_OUT)/simcuda \
	$(SIM_OUT)/stub/libcuda.so $(SIM_OUT)/toolkit/libcuda.so $(SIM_OUT)/toolkit/libnvidia-ml.so $(SIM_TESTS)

$(SIM_OBJ)/%.o: $(SIM_SRC)/%.c $(SIM_SRC)/build.mk
	@mkdir -p $(@D)
	$(call line,CC,$<)$(CC) $(SIM_CFLAGS) -MMD -MP -c -o $@ $<

$(SIM_OBJ)/gen/%.o: $(SIM_OBJ)/gen/%.c $(SIM_SRC)/build.mk
	$(call line,CC,$<)$(CC) $(SIM_CFLAGS) -MMD -MP -c -o $@ $<

# Generated exports: all functions of the real library (from a list) that are not written here (from
# the objects).
$(SIM_OBJ)/gen/driver.names: $(SIM_DRIVER)
$(SIM_OBJ)/gen/nvml.names: $(SIM_NVML)
$(SIM_OBJ)/gen/stub.names: $(SIM_STUB)
$(SIM_OBJ)/gen/%.names:
	@mkdir -p $(@D)
	$(call line,GEN,$@)nm -g --defined-only $^ | awk '$$2 == "T" { print $$3 }' > $@

$(SIM_OBJ)/gen/driver_stubs.c: $(SIM_SRC)/gen/stubs.awk $(SIM_OBJ)/gen/driver.names \
		$(SIM_SRC)/data/exports-555.txt
	$(call line,GEN,$@)awk -v header=driver.h -f $^ > $@

$(SIM_OBJ)/gen/stub_stubs.c: $(SIM_SRC)/gen/stubs.awk $(SIM_OBJ)/gen/stub.names \
		$(SIM_SRC)/data/exports-555.txt
	$(call line,GEN,$@)awk -v header=cuda_abi.h -f $^ > $@

$(SIM_OBJ)/gen/nvml_stubs.c: $(SIM_SRC)/gen/nvml_stubs.awk $(SIM_OBJ)/gen/nvml.names \
		$(SIM_SRC)/data/nvml-exports.txt
	$(call line,GEN,$@)awk -f $^ > $@

$(SIM_OBJ)/gen/resolve_table.c: $(SIM_SRC)/gen/resolve.awk $(SIM_SRC)/data/resolve-555.tsv
	@mkdir -p $(@D)
	$(call line,GEN,$@)awk -f $^ > $@

# Stub libraries, as the CUDA toolkit ships them for linkers in place of the drivers: every function fails.
$(SIM_OBJ)/gen/toolkit_cuda.c: $(SIM_SRC)/gen/toolkit.awk $(SIM_SRC)/data/exports-555.txt
	@mkdir -p $(@D)
	$(call line,GEN,$@)awk -v answer=34 -f $^ > $@

$(SIM_OBJ)/gen/toolkit_nvml.c: $(SIM_SRC)/gen/toolkit.awk $(SIM_SRC)/data/nvml-exports.txt
	@mkdir -p $(@D)
	$(call line,GEN,$@)awk -v answer=9 -f $^ > $@

$(SIM_OUT)/libcuda.so.1: $(SIM_SHARED) $(SIM_DRIVER) $(SIM_OBJ)/gen/driver_stubs.o $(SIM_RESOLVE)
$(SIM_OUT)/libnvidia-ml.so.1: $(SIM_SHARED) $(SIM_NVML) $(SIM_OBJ)/gen/nvml_stubs.o
$(SIM_OUT)/toolkit/libcuda.so.1: $(SIM_OBJ)/gen/toolkit_cuda.o
$(SIM_OUT)/toolkit/libnvidia-ml.so.1: $(SIM_OBJ)/gen/toolkit_nvml.o
$(SIM_OUT)/stub/libcuda.so.1: $(SIM_STUB) $(SIM_OBJ)/gen/stub_stubs.o $(SIM_RESOLVE)
$(SIM_OUT)/%.so.1:
	@mkdir -p $(@D)
	$(call line,LD,$@)$(CC) $(SIM_LDFLAGS) $(SIM_SYMBOLIC) -Wl,-soname,$(@F) -o $@ $^ -ldl

$(SIM_OUT)/%.so: $(SIM_OUT)/%.so.1
	@ln -sfn $(<F) $@

$(SIM_OUT)/simcuda: $(SIM_SHARED) $(call sim_objects,oracle)
	@mkdir -p $(@D)
	$(call line,LD,$@)$(CC) -pthread -o $@ $^

# Test programs find the driver as any program does: by its name, on the library path.
$(SIM_OUT)/test/%: $(SIM_SRC)/test/%.c $(SIM_SRC)/test/testlib.h $(SIM_SRC)/build.mk
	@mkdir -p $(@D)
	$(call line,LD,$@)$(CC) $(filter-out -fPIC,$(SIM_CFLAGS)) -o $@ $< -ldl

.SECONDARY: $(SIM_SHARED) $(SIM_DRIVER) $(SIM_NVML) $(SIM_STUB)
-include $(wildcard $(SIM_OBJ)/*/*.d)
