# SPDX-License-Identifier: Apache-2.0
# The test programs: build/programs/. Needs the simulated driver to link against.

BUILD ?= build
include tools/lines.mk
PROGRAMS_SRC := tests/programs
PROGRAMS_OUT := $(BUILD)/programs
PROGRAMS_CFLAGS := -std=c11 -D_GNU_SOURCE -O2 -g -Wall -Wextra -Wconversion -Wshadow \
                   -Wstrict-prototypes -Werror -pthread

# The name of a program tells how it finds an interface's functions.
$(PROGRAMS_OUT)/%-link: HOW := LINK
$(PROGRAMS_OUT)/%-dlsym: HOW := DLSYM
$(PROGRAMS_OUT)/%-gpa: HOW := GPA
$(PROGRAMS_OUT)/%-extension: HOW := EXTENSION
$(PROGRAMS_OUT)/%-instance: HOW := INSTANCE
$(PROGRAMS_OUT)/%-device: HOW := DEVICE

# Programs that also run on a real driver, and need only a compiler.
PROGRAMS_OF_THE_DRIVER := $(PROGRAMS_OUT)/cudaprog-dlsym $(PROGRAMS_OUT)/cudaprog-link $(PROGRAMS_OUT)/cudaprog-gpa

.PHONY: programs
programs: $(PROGRAMS_OF_THE_DRIVER) $(PROGRAMS_OUT)/team $(PROGRAMS_OUT)/permits \
          $(PROGRAMS_OUT)/cudaext.so $(PROGRAMS_OUT)/lookups $(PROGRAMS_OUT)/loader $(PROGRAMS_OUT)/loader-own \
          $(PROGRAMS_OUT)/processes $(PROGRAMS_OUT)/started $(PROGRAMS_OUT)/service $(PROGRAMS_OUT)/reenter/libcuda.so.1 \
          $(PROGRAMS_OUT)/openacc $(PROGRAMS_OUT)/nvcuvid/libnvcuvid.so.1 \
          $(PROGRAMS_OUT)/clprog-link $(PROGRAMS_OUT)/clprog-dlsym $(PROGRAMS_OUT)/clprog-extension \
          $(PROGRAMS_OUT)/oldopencl/libOpenCL.so.1 $(PROGRAMS_OUT)/nvopencl/libnvidia-opencl.so.1 \
          $(PROGRAMS_OUT)/oddcuda/libcuda.so.1 \
          $(PROGRAMS_OUT)/vkprog-link $(PROGRAMS_OUT)/vkprog-dlsym $(PROGRAMS_OUT)/vkprog-instance $(PROGRAMS_OUT)/vkprog-device \
          $(PROGRAMS_OUT)/libvkcount.so $(PROGRAMS_OUT)/mixed $(PROGRAMS_OUT)/libmade.so $(PROGRAMS_OUT)/clbefore.so \
          $(PROGRAMS_OUT)/copies $(PROGRAMS_OUT)/copieslink.so $(PROGRAMS_OUT)/cudaprog-static

PROGRAMS_DEPS := $(wildcard $(PROGRAMS_SRC)/cudaprog*.[ch]) $(PROGRAMS_SRC)/cudriver.c $(PROGRAMS_SRC)/cudriver.h \
                 $(PROGRAMS_SRC)/cunvml.c $(PROGRAMS_SRC)/cunvml.h $(PROGRAMS_SRC)/build.mk

$(PROGRAMS_OUT)/cudaprog-dlsym $(PROGRAMS_OUT)/cudaprog-gpa: $(PROGRAMS_DEPS)
	@mkdir -p $(@D)
	$(call line,LD,$@)$(CC) $(PROGRAMS_CFLAGS) -DHOW_$(HOW) -o $@ $(filter %.c,$^) -ldl

$(PROGRAMS_OUT)/team: $(PROGRAMS_SRC)/team.c $(PROGRAMS_DEPS)
	@mkdir -p $(@D)
	$(call line,LD,$@)$(CC) $(PROGRAMS_CFLAGS) -DHOW_DLSYM -o $@ $< $(PROGRAMS_SRC)/cudriver.c -ldl

INSIDE := $(PROGRAMS_SRC)/inside.c $(PROGRAMS_SRC)/inside.h
$(PROGRAMS_OUT)/permits: $(PROGRAMS_SRC)/permits.c $(INSIDE) $(PROGRAMS_DEPS)
	@mkdir -p $(@D)
	$(call line,LD,$@)$(CC) $(PROGRAMS_CFLAGS) -DHOW_DLSYM -o $@ $< $(PROGRAMS_SRC)/inside.c $(PROGRAMS_SRC)/cudriver.c -ldl

# The libraries are found at run time through LD_LIBRARY_PATH, as on a machine with a driver. Lazy
# binding, because an older driver lacks some of the functions.
$(PROGRAMS_OUT)/cudaprog-link: $(PROGRAMS_DEPS) $(BUILD)/sim/libcuda.so $(BUILD)/sim/libnvidia-ml.so
	@mkdir -p $(@D)
	$(call line,LD,$@)$(CC) $(PROGRAMS_CFLAGS) -DHOW_$(HOW) -o $@ $(filter %.c,$^) \
	  -Wl,-z,lazy -L$(BUILD)/sim -lcuda -lnvidia-ml

# A static program, in which nothing can be preloaded: it contains the simulated driver. The
# driver's look-ups of itself need a dynamic loader, so ld warns about them.
$(PROGRAMS_OUT)/cudaprog-static: $(PROGRAMS_DEPS) $(SIM_SHARED) $(SIM_DRIVER) $(SIM_NVML) $(SIM_RESOLVE) \
		$(SIM_OBJ)/gen/driver_stubs.o $(SIM_OBJ)/gen/nvml_stubs.o
	@mkdir -p $(@D)
	$(call line,LD,$@)$(CC) $(PROGRAMS_CFLAGS) -DHOW_LINK -static -Wl,--no-warnings -o $@ $(filter %.c %.o,$^)

# For the system's Python, whichever Python comes first in PATH.
$(PROGRAMS_OUT)/cudaext.so: $(PROGRAMS_SRC)/cudaext.c $(PROGRAMS_SRC)/build.mk $(BUILD)/sim/libcuda.so
	@mkdir -p $(@D)
	$(call line,LD,$@)$(CC) -O2 -g -Wall -Wextra -Wshadow -Werror -fPIC -shared \
	  $$(/usr/bin/python3-config --includes) -o $@ $< -L$(BUILD)/sim -lcuda

PROCESSES := $(wildcard $(PROGRAMS_SRC)/processes*.c) $(PROGRAMS_SRC)/cudriver.c
$(PROGRAMS_OUT)/processes: $(PROCESSES) $(PROGRAMS_SRC)/processes.h $(PROGRAMS_SRC)/cudriver.h $(PROGRAMS_SRC)/build.mk
	@mkdir -p $(@D)
	$(call line,LD,$@)$(CC) $(PROGRAMS_CFLAGS) -DHOW_DLSYM -o $@ $(PROCESSES) -ldl

$(PROGRAMS_OUT)/started $(PROGRAMS_OUT)/service: $(PROGRAMS_OUT)/%: $(PROGRAMS_SRC)/%.c $(PROGRAMS_SRC)/build.mk
	@mkdir -p $(@D)
	$(call line,LD,$@)$(CC) $(PROGRAMS_CFLAGS) -o $@ $<

$(PROGRAMS_OUT)/lookups: $(PROGRAMS_SRC)/lookups.c $(PROGRAMS_SRC)/build.mk
	@mkdir -p $(@D)
	$(call line,LD,$@)$(CC) $(PROGRAMS_CFLAGS) -o $@ $< -ldl

$(PROGRAMS_OUT)/copies: $(PROGRAMS_SRC)/copies.c $(PROGRAMS_SRC)/build.mk
	@mkdir -p $(@D)
	$(call line,LD,$@)$(CC) $(PROGRAMS_CFLAGS) -o $@ $< -ldl

$(PROGRAMS_OUT)/copieslink.so: $(PROGRAMS_SRC)/copieslink.c $(PROGRAMS_SRC)/build.mk $(BUILD)/sim/libcuda.so
	@mkdir -p $(@D)
	$(call line,LD,$@)$(CC) $(PROGRAMS_CFLAGS) -fPIC -shared -o $@ $< -L$(BUILD)/sim -lcuda

# The program loader, its libraries, and a variant with functions that have names of the driver's
# functions.
LOADER_DEPS := $(wildcard $(PROGRAMS_SRC)/loader*) $(PROGRAMS_SRC)/build.mk
$(PROGRAMS_OUT)/libloader%.so: $(LOADER_DEPS)
	@mkdir -p $(@D)
	$(call line,LD,$@)$(CC) $(PROGRAMS_CFLAGS) -fPIC -shared -DWHO=$(firstword $(subst -, ,$*)) $(if $(findstring -own,$*),-DOWN) \
	  -Wl,--version-script=$(PROGRAMS_SRC)/loader.map -Wl,-soname,$(@F) -o $@ $(PROGRAMS_SRC)/loaderlib.c -ldl

# The libraries must be loaded even if the program calls none of their functions.
$(PROGRAMS_OUT)/loader $(PROGRAMS_OUT)/loader-own: $(PROGRAMS_OUT)/loader%: $(LOADER_DEPS) \
  $(PROGRAMS_OUT)/libloader1%.so $(PROGRAMS_OUT)/libloader2%.so $(PROGRAMS_OUT)/libloader3%.so
	$(call line,LD,$@)$(CC) $(PROGRAMS_CFLAGS) -rdynamic $(if $*,-DOWN) -o $@ $(PROGRAMS_SRC)/loader.c -Wl,-rpath,'$$ORIGIN' \
	  -Wl,--no-as-needed $(PROGRAMS_OUT)/libloader1$*.so $(PROGRAMS_OUT)/libloader2$*.so -ldl

# A driver whose calls of its own functions go through the global scope.
$(PROGRAMS_OUT)/reenter/libcuda.so.1: $(PROGRAMS_SRC)/reenter.c $(PROGRAMS_SRC)/build.mk
	@mkdir -p $(@D)
	$(call line,LD,$@)$(CC) $(PROGRAMS_CFLAGS) -fPIC -shared -Wl,-soname,libcuda.so.1 -o $@ $< -ldl

# Always compiled with GCC, because the runtime is GCC's. Its plug-in for the driver is opened at
# run time.
$(PROGRAMS_OUT)/openacc: $(PROGRAMS_SRC)/openacc.c $(PROGRAMS_SRC)/build.mk
	@mkdir -p $(@D)
	$(call line,LD,$@)gcc $(PROGRAMS_CFLAGS) -fopenmp -fopenacc -o $@ $<

# Libraries that stand in for a vendor's library or a loader.
$(PROGRAMS_OUT)/nvcuvid/libnvcuvid.so.1: $(PROGRAMS_SRC)/nvcuvid.c
$(PROGRAMS_OUT)/oldopencl/libOpenCL.so.1: $(PROGRAMS_SRC)/oldopencl.c
$(PROGRAMS_OUT)/nvopencl/libnvidia-opencl.so.1: $(PROGRAMS_SRC)/nvopencl.c
$(PROGRAMS_OUT)/oddcuda/libcuda.so.1: $(PROGRAMS_SRC)/oddcuda.c
$(PROGRAMS_OUT)/%.so.1: $(PROGRAMS_SRC)/build.mk
	@mkdir -p $(@D)
	$(call line,LD,$@)$(CC) $(PROGRAMS_CFLAGS) -fPIC -shared -Wl,-soname,$(@F) -o $@ $(filter %.c,$^)

# With the system's OpenCL loader and headers.
CLPROG := $(PROGRAMS_SRC)/clprog.c $(PROGRAMS_SRC)/clprog.h $(PROGRAMS_SRC)/script.c $(PROGRAMS_SRC)/script.h $(PROGRAMS_SRC)/build.mk
$(PROGRAMS_OUT)/clprog-link: $(CLPROG)
	@mkdir -p $(@D)
	$(call line,LD,$@)$(CC) $(PROGRAMS_CFLAGS) -DHOW_$(HOW) -o $@ $(filter %.c,$^) -lOpenCL

$(PROGRAMS_OUT)/clprog-dlsym $(PROGRAMS_OUT)/clprog-extension: $(CLPROG)
	@mkdir -p $(@D)
	$(call line,LD,$@)$(CC) $(PROGRAMS_CFLAGS) -DHOW_$(HOW) -o $@ $(filter %.c,$^) -ldl

# With the system's Vulkan loader.
VKPROG := $(wildcard $(PROGRAMS_SRC)/vkprog*.[ch]) $(PROGRAMS_SRC)/script.c $(PROGRAMS_SRC)/script.h $(PROGRAMS_SRC)/build.mk
$(PROGRAMS_OUT)/vkprog-link: $(VKPROG)
	@mkdir -p $(@D)
	$(call line,LD,$@)$(CC) $(PROGRAMS_CFLAGS) -DHOW_$(HOW) -o $@ $(filter %.c,$^) -lvulkan -ldl

$(PROGRAMS_OUT)/vkprog-dlsym $(PROGRAMS_OUT)/vkprog-instance $(PROGRAMS_OUT)/vkprog-device: $(VKPROG)
	@mkdir -p $(@D)
	$(call line,LD,$@)$(CC) $(PROGRAMS_CFLAGS) -DHOW_$(HOW) -o $@ $(filter %.c,$^) -ldl

# All three interfaces in one program: CUDA's driver is opened, and the loaders of OpenCL and Vulkan
# are linked.
MIXED := $(wildcard $(PROGRAMS_SRC)/mixed*.[ch]) $(INSIDE) $(PROGRAMS_SRC)/script.c $(PROGRAMS_SRC)/script.h \
         $(PROGRAMS_SRC)/cudriver.c $(PROGRAMS_SRC)/cudriver.h $(PROGRAMS_SRC)/build.mk
$(PROGRAMS_OUT)/mixed: $(MIXED)
	@mkdir -p $(@D)
	$(call line,LD,$@)$(CC) $(PROGRAMS_CFLAGS) -DHOW_DLSYM -o $@ $(filter %.c,$^) -lOpenCL -lvulkan -ldl

# Layers.
$(PROGRAMS_OUT)/libvkcount.so $(PROGRAMS_OUT)/libmade.so: $(PROGRAMS_OUT)/lib%.so: $(PROGRAMS_SRC)/%.c $(PROGRAMS_SRC)/build.mk
	@mkdir -p $(@D)
	$(call line,LD,$@)$(CC) $(PROGRAMS_CFLAGS) -fPIC -shared -fvisibility=hidden -Wl,-Bsymbolic -o $@ $<

$(PROGRAMS_OUT)/clbefore.so: $(PROGRAMS_SRC)/clbefore.c $(PROGRAMS_SRC)/build.mk
	@mkdir -p $(@D)
	$(call line,LD,$@)$(CC) $(PROGRAMS_CFLAGS) -fPIC -shared -o $@ $<

# If this file is used alone, without the driver's rules, build the driver once.
ifndef SIM_OUT
$(BUILD)/sim/libcuda.so $(BUILD)/sim/libnvidia-ml.so:
	@$(MAKE) --no-print-directory -f tests/simcuda/build.mk BUILD=$(BUILD) sim
endif
