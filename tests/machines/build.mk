# SPDX-License-Identifier: Apache-2.0
# Steps of `make test-full`: the README's two commands on machines that are not like this one, each
# made afresh by tools/fresh-root.sh.

.PHONY: container-full llvm-full
container-full:
	@tools/fresh-root.sh --pid tests/machines/container.sh

# PoCL brings another LLVM, and that its own runtime of the sanitizers.
llvm-full:
	@tools/fresh-root.sh --with "pocl-opencl-icd libclang-rt-16-dev" 'make demo && make test'
