// SPDX-License-Identifier: Apache-2.0
// Allocates and frees device memory (memory.h).
#include "cuda/memory.h"

#include "cuda/allocation.h"
#include "cuda/host.h"
#include "cuda/import.h"
#include "cuda/state.h"
#include "memory/pool.h"

bool ga_cuda_memory_undo(uint64_t address) {
    return GA_REAL(cuMemFree_v2)(address) == GA_CUDA_SUCCESS;
}

bool ga_cuda_memory_undo_v1(uint64_t address) {
    return GA_REAL(cuMemFree)((uint32_t)address) == GA_CUDA_SUCCESS;
}

bool ga_cuda_memory_open_managed(struct ga_allocation *c, uint64_t bytes) {
    if (!ga_cuda_allocation_open(c, bytes, GA_MEMORY_MANAGED))
        return false;
    if (c->root)
        ga_publish_soft(c->root); // its pages move to where they are used
    return true;
}

// Estimates the row length in bytes: the driver rounds rows up to the device's texture alignment.
static uint64_t expected_pitch(struct ga_root *root, int device, uint64_t width) {
    _Atomic uint32_t *known = &ga_cuda(root)->alignment[device];
    uint32_t alignment = atomic_load(known);
    if (alignment == 0) {
        int value = 0;
        if (!GA_ASK(cuDeviceGetAttribute, &value, GA_CUDA_ATTRIBUTE_TEXTURE_ALIGNMENT,
                    ga_cuda_device_ordinal(root, (uint32_t)device)) ||
            value < 1)
            value = 512;
        alignment = (uint32_t)value;
        atomic_store(known, alignment);
    }
    uint64_t rows = (width + alignment - 1) / alignment;
    return rows * alignment;
}

bool ga_cuda_memory_open_pitched(struct ga_allocation *c, uint64_t width, uint64_t height) {
    c->root = NULL;
    c->entry = (struct ga_entry){.kind = GA_MEMORY_PITCHED};
    if (width == 0 || height == 0)
        return true;
    if (!ga_allocation_begin(c))
        return false;
    int device = c->root ? ga_cuda_device_current(c->root, &c->entry.context) : -1;
    // If the size overflows, nothing is reserved, because the driver refuses the call.
    if (device >= 0 &&
        (width > UINT64_MAX / 2 ||
         __builtin_mul_overflow(expected_pitch(c->root, device, width), height, &c->entry.bytes)))
        device = -1;
    return ga_cuda_allocation_acquire(c, device);
}

ga_result ga_cuda_memory_settle_pitched(struct ga_allocation *c, ga_result result,
                                        ga_address address, uint64_t bytes, ga_cuda_undo *undo) {
    if (c->root && result == GA_CUDA_SUCCESS && !ga_admit_change(c->root, &c->entry, bytes)) {
        undo(address);
        result = GA_CUDA_OUT_OF_MEMORY;
    }
    return ga_cuda_allocation_settle(c, result, address, undo);
}

GA_NOINLINE enum ga_cuda_freed ga_cuda_memory_remove_other(struct ga_allocation *c,
                                                           ga_address address) {
    if (!c->root)
        return GA_CUDA_FREED_UNKNOWN;
    if (ga_memory_pool_remove(c->root, address, &c->entry))
        return GA_CUDA_FREED_POOLED;
    if (ga_cuda_host_remove(c, (void *)(uintptr_t)address, GA_CUDA_HOST_POOLED))
        return GA_CUDA_FREED_HOST;
    return ga_cuda_import_remove(c, address) ? GA_CUDA_FREED_IMPORT : GA_CUDA_FREED_UNKNOWN;
}

ga_result ga_cuda_memory_freed(const struct ga_allocation *c, enum ga_cuda_freed what,
                               ga_result result) {
    if (GA_LIKELY(what == GA_CUDA_FREED_BLOCK))
        ga_cuda_allocation_freed(c, result);
    else if (what == GA_CUDA_FREED_POOLED && result == GA_CUDA_SUCCESS)
        ga_memory_pool_freed(c->root, &c->entry, true);
    else if (what == GA_CUDA_FREED_POOLED)
        ga_memory_pool_reinsert(c->root, &c->entry);
    else if (what == GA_CUDA_FREED_HOST)
        ga_cuda_host_freed(c, result);
    else if (what == GA_CUDA_FREED_IMPORT)
        ga_cuda_import_freed(c, result);
    return result;
}
