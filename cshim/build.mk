# SPDX-License-Identifier: Apache-2.0
# libgpuarb.so. Included by the top Makefile, and usable alone:
#   make -f cshim/build.mk BUILD=build shim

BUILD ?= build
SHIM_CFLAGS ?=

# What the core is: no driver, no loader. The unit tests link it.
SHIM_CORE := admit env lane link lock log os root session table
# What knows CUDA and the loader.
SHIM_GLUE := cuda_context cuda_device cuda_memory cuda_pending cuda_query cuda_stream \
             driver hooks loader preload resolve

SHIM_FLAGS := -std=c11 -D_GNU_SOURCE -O2 -g -Wall -Wextra -Wconversion -Wshadow \
              -Wstrict-prototypes -Werror -fvisibility=hidden -fPIC -fno-semantic-interposition \
              -fno-stack-protector -ftls-model=initial-exec
SHIM_DIR := $(BUILD)/cshim
SHIM_OBJECTS := $(patsubst %,$(SHIM_DIR)/%.o,$(SHIM_CORE) $(SHIM_GLUE))
SHIM_HEADERS := $(wildcard cshim/*.h) cshim/hooks.def

.PHONY: shim
shim: $(BUILD)/libgpuarb.so

$(SHIM_DIR)/%.o: cshim/%.c $(SHIM_HEADERS) cshim/build.mk
	@mkdir -p $(@D)
	$(CC) $(SHIM_FLAGS) $(SHIM_CFLAGS) -c -o $@ $<

$(SHIM_DIR)/gpuarb.map: cshim/gpuarb.map.in cshim/hooks.def
	@mkdir -p $(@D)
	$(CC) -E -P -x c -o $@ $<

# No start files: nothing of theirs is needed, and each imported symbol costs every program that
# is started under the preload.
$(BUILD)/libgpuarb.so: $(SHIM_OBJECTS) $(SHIM_DIR)/gpuarb.map
	$(CC) -shared -nostartfiles -Wl,-soname,libgpuarb.so -Wl,-z,relro,-z,now,-z,noexecstack \
	  -Wl,-Bsymbolic-functions -Wl,--as-needed -Wl,--hash-style=gnu -Wl,-z,defs \
	  -Wl,--version-script,$(SHIM_DIR)/gpuarb.map -o $@ $(SHIM_OBJECTS)
