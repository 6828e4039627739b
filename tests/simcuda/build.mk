# SPDX-License-Identifier: Apache-2.0
#
# The simulated driver: `make sim`, or alone: make -f tests/simcuda/build.mk BUILD=build sim

BUILD ?= build
CC ?= cc

SIM_SRC := tests/simcuda
SIM_OUT := $(BUILD)/sim
SIM_OBJ := $(BUILD)/obj/simcuda
SIM_CFLAGS := -std=c11 -D_GNU_SOURCE -O2 -g -Wall -Wextra -Wconversion -Wshadow \
	-Wstrict-prototypes -Werror -fvisibility=hidden -fPIC -pthread -I$(SIM_SRC)
SIM_LDFLAGS := -shared -pthread -Wl,-Bsymbolic -Wl,-z,relro -Wl,-z,now -Wl,--no-undefined

SIM_STATE := state config process
SIM_DRIVER := init fault handle device context ctxquery block memory pool copy host pointer \
	queue stream event error resolve
SIM_NVML := nvml nvml_device nvml_event
SIM_TESTS := $(patsubst $(SIM_SRC)/test/%.c,%,$(wildcard $(SIM_SRC)/test/*.c))

sim_objects = $(addprefix $(SIM_OBJ)/,$(addsuffix .o,$(1)))

.PHONY: sim
sim: $(SIM_OUT)/libcuda.so $(SIM_OUT)/libnvidia-ml.so $(SIM_OUT)/simcuda \
	$(SIM_OUT)/stub/libcuda.so $(addprefix $(SIM_OUT)/test/,$(SIM_TESTS))

$(SIM_OBJ)/%.o: $(SIM_SRC)/%.c $(SIM_SRC)/build.mk
	@mkdir -p $(@D)
	$(CC) $(SIM_CFLAGS) -MMD -MP -c -o $@ $<

$(SIM_OBJ)/gen/%.o: $(SIM_OBJ)/gen/%.c $(SIM_SRC)/build.mk
	$(CC) $(SIM_CFLAGS) -MMD -MP -c -o $@ $<

# What is exported although nobody wrote it: one list says what the real driver has, the objects say
# what is here.
$(SIM_OBJ)/gen/driver.names: $(call sim_objects,$(SIM_DRIVER))
	@mkdir -p $(@D)
	nm -g --defined-only $^ | awk '$$2 == "T" { print $$3 }' > $@

$(SIM_OBJ)/gen/nvml.names: $(call sim_objects,$(SIM_NVML))
	@mkdir -p $(@D)
	nm -g --defined-only $^ | awk '$$2 == "T" { print $$3 }' > $@

$(SIM_OBJ)/gen/stub.names: $(call sim_objects,stub/stub resolve)
	@mkdir -p $(@D)
	nm -g --defined-only $^ | awk '$$2 == "T" { print $$3 }' > $@

$(SIM_OBJ)/gen/driver_stubs.c: $(SIM_SRC)/gen_stubs.awk $(SIM_OBJ)/gen/driver.names \
		$(SIM_SRC)/data/exports-555.txt
	awk -v header=driver.h -f $^ > $@

$(SIM_OBJ)/gen/stub_stubs.c: $(SIM_SRC)/gen_stubs.awk $(SIM_OBJ)/gen/stub.names \
		$(SIM_SRC)/data/exports-555.txt
	awk -v header=cuda_abi.h -f $^ > $@

$(SIM_OBJ)/gen/nvml_stubs.c: $(SIM_SRC)/gen_nvml_stubs.awk $(SIM_OBJ)/gen/nvml.names \
		$(SIM_SRC)/data/nvml-exports.txt
	awk -f $^ > $@

$(SIM_OBJ)/gen/resolve_table.c: $(SIM_SRC)/gen_resolve.awk $(SIM_SRC)/data/resolve-555.tsv
	@mkdir -p $(@D)
	awk -f $^ > $@

$(SIM_OUT)/libcuda.so.1: $(call sim_objects,$(SIM_STATE) $(SIM_DRIVER) gen/driver_stubs \
		gen/resolve_table)
	@mkdir -p $(@D)
	$(CC) $(SIM_LDFLAGS) -Wl,-soname,libcuda.so.1 -o $@ $^ -ldl

$(SIM_OUT)/libnvidia-ml.so.1: $(call sim_objects,$(SIM_STATE) $(SIM_NVML) gen/nvml_stubs)
	@mkdir -p $(@D)
	$(CC) $(SIM_LDFLAGS) -Wl,-soname,libnvidia-ml.so.1 -o $@ $^

$(SIM_OUT)/stub/libcuda.so.1: $(call sim_objects,stub/stub resolve gen/stub_stubs \
		gen/resolve_table)
	@mkdir -p $(@D)
	$(CC) $(SIM_LDFLAGS) -Wl,-soname,libcuda.so.1 -o $@ $^

$(SIM_OUT)/%.so: $(SIM_OUT)/%.so.1
	ln -sfn $(<F) $@

$(SIM_OUT)/simcuda: $(call sim_objects,$(SIM_STATE) oracle)
	@mkdir -p $(@D)
	$(CC) -pthread -o $@ $^

# Test programs find the driver as any program does: by its name, on the library path.
$(SIM_OUT)/test/%: $(SIM_SRC)/test/%.c $(SIM_SRC)/test/testlib.h $(SIM_SRC)/build.mk
	@mkdir -p $(@D)
	$(CC) $(filter-out -fPIC,$(SIM_CFLAGS)) -o $@ $< -ldl

-include $(wildcard $(SIM_OBJ)/*.d $(SIM_OBJ)/*/*.d)
