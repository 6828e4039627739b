#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# entrypoints.sh: compare the rows of the interfaces' hooks.def with the vendors' prototypes, which are in the
# inventory of all functions, or in entrypoints.tsv (symbol, prototype) where they are not, and of OpenCL and Vulkan in
# their headers, where they are installed: every row has one, and both have the same parameters, as far as the
# machine sees them: pointer, 64-bit, 32-bit, in order. And the rows of OpenCL have their places in the
# table of functions of its loader.
set -euo pipefail
cd "$(dirname "$0")"

# Reads "symbol(parameter, …)" lines; prints "symbol class class …".
classes() {
    awk '
    function class(p) {
        if (p ~ /\*/) return "pointer"
        sub(/^ */, "", p)
        sub(/^const /, "", p)
        if (p ~ /^(void *)?$/) return ""
        if (p ~ /^(CUdeviceptr_v1|unsigned int|int|uint32_t|CUdevice|ga_cu_device|VdpDevice|CUstreamCaptureMode|CUdevice_attribute|CUmemPool_attribute|CUpointer_attribute|CUmemAllocationType|CUmemAllocationHandleType|CUgraphMem_attribute|CUgraphNodeType|CUlimit)( |$)/) return "32"
        if (p ~ /^(CUdeviceptr|size_t|uint64_t|cuuint64_t|unsigned long long|CUmemGenericAllocationHandle|ga_address|ga_memory)( |$)/) return "64"
        if (p ~ /^(CUcontext|CUgraphRecaptureCallback|CUhostFn|CUmodule|CUlibrary|CUexternalMemory|ga_module|ga_library_handle|CUgreenCtx|CUdevResourceDesc|ga_green|nvmlDevice_t|ga_nvml_device|CUstream|CUevent|CUmemoryPool|CUarray|CUmipmappedArray|ga_context|ga_stream|ga_event|ga_pool|ga_array|ga_mipmap|CUgraph|CUgraphNode|CUgraphExec|ga_graph|ga_node|ga_exec)( |$)/) return "pointer"
        if (p ~ /^(CUipcMemHandle|struct ga_cu_ipc)( |$)/) return "64 bytes"
        if (p ~ /^(cl_(u?int|bool|buffer_create_type|(platform|device|context|command_queue|kernel)_info)|ga_cl_u?int)( |$)/) return "32"
        if (p ~ /^(cl_(svm_)?mem_flags|cl_(map|mem_migration)_flags|cl_device_type|ga_cl_bits)( |$)/) return "64"
        if (p ~ /^(cl_(platform_id|device_id|context|command_queue|mem|event|kernel|program|sampler)|ga_cl_(platform|device|context|queue|mem|event|object|address))( |$)/) return "pointer"
        if (p ~ /^(Vk(Instance|PhysicalDevice|Device)|ga_vk_(instance|physical|device))( |$)/) return "pointer"
        if (p ~ /^(VkDeviceMemory|ga_vk_memory)( |$)/) return "64"
        return "unknown:" p
    }
    {
        open = index($0, "(")
        symbol = substr($0, 1, open - 1)
        gsub(/ /, "", symbol)
        inside = substr($0, open + 1)
        sub(/\).*$/, "", inside)
        n = split(inside, p, ",")
        line = symbol
        for (i = 1; i <= n; i++) line = line " " class(p[i])
        print line
    }' | sort
}

rows() {
    printf '#define GA_HOOK(symbol, class, bytes, parameters, arguments, ...) @symbol parameters\n#define GA_NEED(symbol, parameters) @symbol parameters\n#include "cuda/hooks.def"\n#include "nvml/hooks.def"\n' |
        "${CC:-gcc}" -E -P -x c -iquote .. - | tr '\n' ' ' | tr '@' '\n' | grep '('
}

# The prototypes of the symbols that come in, one a line.
prototypes() {
    awk -F '\t' 'NR == FNR { wanted[$1] = 1; next } $1 in wanted && $NF ~ /\(/ { print $NF }' \
        - ../entrypoints/testdata/inventory.tsv entrypoints.tsv | sed 's/^[A-Za-z_]* //' | sort -u
}

opencl_rows() {
    printf '#define GA_HOOK(symbol, place, class, bytes, returns, parameters, ...) @symbol parameters\n#define GA_NEED(symbol, place, returns, parameters) @symbol parameters\n#include "opencl/hooks.def"\n' |
        "${CC:-gcc}" -E -P -x c -iquote .. - | tr '\n' ' ' | tr '@' '\n' | grep '('
}

# A function that is a parameter is a pointer.
opencl_prototypes() {
    printf '#define CL_TARGET_OPENCL_VERSION 300\n#include <CL/cl.h>\n' | "${CC:-gcc}" -E -P -x c - | tr '\n' ' ' | tr ';' '\n' |
        sed -nE 's/  +/ /g; s/void \( *\* *\w+\) *\([^)]*\)/void */g; s/^.* (cl[A-Z]\w*) *\((.*)$/\1(\2/p' |
        grep -F "$(opencl_rows | sed 's/ *(.*/(/')"
}

diff <(rows | classes) <(rows | cut -d ' ' -f 1 | prototypes | classes)
if [ -e /usr/include/CL/cl.h ]; then
    diff <(opencl_rows | classes) <(opencl_prototypes | classes)
    printf '#include <stddef.h>\n#include <CL/cl_icd.h>\n#define GA_HOOK(symbol, place, ...) _Static_assert(offsetof(cl_icd_dispatch, symbol) == (place) * sizeof(void *), #symbol);\n#define GA_NEED GA_HOOK\n#include "opencl/hooks.def"\n' |
        "${CC:-gcc}" -DCL_TARGET_OPENCL_VERSION=300 -fsyntax-only -x c -iquote .. -
fi
# The loader hands Vulkan's functions over.
vulkan_rows() {
    printf '#define GA_LAYER(symbol, scope, returns, parameters, ...) @symbol parameters\n#define GA_ASKS(symbol, returns, parameters) @symbol parameters\n#include "vulkan/layer.def"\n' |
        "${CC:-gcc}" -E -P -x c -iquote .. - | tr '\n' ' ' | tr '@' '\n' | grep '('
}

vulkan_prototypes() {
    printf '#include <vulkan/vulkan.h>\n' | "${CC:-gcc}" -E -P -x c - | tr '\n' ' ' | tr ';' '\n' |
        sed -nE 's/  +/ /g; s/^.* (vk[A-Z]\w*) *\((.*)$/\1(\2/p' | grep -F "$(vulkan_rows | sed 's/ *(.*/(/')"
}

if [ -e /usr/include/vulkan/vk_layer.h ]; then
    diff <(vulkan_rows | classes) <(vulkan_prototypes | classes)
    "${CC:-gcc}" -std=c11 -fsyntax-only -iquote .. vulkan_layout.c
fi
