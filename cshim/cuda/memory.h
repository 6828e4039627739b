// SPDX-License-Identifier: Apache-2.0
// Wrappers' steps for device memory: cuMemAlloc, cuMemAllocPitch, cuMemAllocManaged and cuMemFree.
// Called by hooks.c and async.c.
#ifndef GA_CUDA_MEMORY_H
#define GA_CUDA_MEMORY_H

#include "cuda/allocation.h"

// Free a block again. The first version (v1) must be freed by its own function: its address has 32
// bits, and may be invalid for the second version.
bool ga_cuda_memory_undo(uint64_t address);
bool ga_cuda_memory_undo_v1(uint64_t address);

// Reserves the bytes of managed memory. False: refused.
bool ga_cuda_memory_open_managed(struct ga_allocation *c, uint64_t bytes);

// Reserve the bytes of memory with padded rows. The driver chooses the row length, so the bytes are
// estimated before the call and corrected after it.
bool ga_cuda_memory_open_pitched(struct ga_allocation *c, uint64_t width, uint64_t height);
ga_result ga_cuda_memory_settle_pitched(struct ga_allocation *c, ga_result result,
                                        ga_address address, uint64_t bytes, ga_cuda_undo *undo);

// Kind of memory that a freed address belongs to.
enum ga_cuda_freed {
    GA_CUDA_FREED_BLOCK,
    GA_CUDA_FREED_POOLED, // a block of a device pool
    GA_CUDA_FREED_HOST,   // a block of a pool in host memory
    GA_CUDA_FREED_IMPORT, // imported from another process
    GA_CUDA_FREED_UNKNOWN,
};
// Removes the entry of a freed address that is not an ordinary block.
enum ga_cuda_freed ga_cuda_memory_remove_other(struct ga_allocation *c, ga_address address);
// Removes the entry of a freed address, and returns what the address belongs to. The caller then
// calls the driver, and then ga_cuda_memory_freed.
static inline enum ga_cuda_freed ga_cuda_memory_remove(struct ga_allocation *c,
                                                       ga_address address) {
    return GA_LIKELY(ga_cuda_allocation_remove(c, address))
               ? GA_CUDA_FREED_BLOCK
               : ga_cuda_memory_remove_other(c, address);
}
// Settles the free after the driver's answer. Returns result.
ga_result ga_cuda_memory_freed(const struct ga_allocation *c, enum ga_cuda_freed what,
                               ga_result result);

#endif
