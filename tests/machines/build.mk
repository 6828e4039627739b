# SPDX-License-Identifier: Apache-2.0
# Steps of `make test-full`: the README's two commands on machines with other software, each
# newly made by tools/fresh-root.sh.

.PHONY: container-full llvm-full lived-in-full
container-full:
	@tools/fresh-root.sh --pid tests/machines/container.sh

# PoCL installs another LLVM, with its own runtime of the sanitizers.
llvm-full:
	@tools/fresh-root.sh --with "pocl-opencl-icd libclang-rt-16-dev" 'make demo && make test'

# A machine with much software: drivers of several vendors without their devices, and programs with
# libraries and layers of their own.
lived-in-full:
	@tools/fresh-root.sh --with "libgl1 libegl1 libcuda1 nvidia-cuda-dev python3-pycuda hashcat pocl-opencl-icd mesa-vulkan-drivers \
	    gstreamer1.0-plugins-good gstreamer1.0-plugins-bad gstreamer1.0-plugins-ugly gstreamer1.0-libav" 'make demo && make test'
