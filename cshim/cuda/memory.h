// SPDX-License-Identifier: Apache-2.0
// Device memory: admit, call the driver, record or roll back; and the reverse.
#ifndef GA_CUDA_MEMORY_H
#define GA_CUDA_MEMORY_H

#include "cuda/allocation.h"

// An address of 32 bits, of the first versions, need not mean anything to the other interface.
bool ga_cuda_memory_undo(uint64_t address);
bool ga_cuda_memory_undo_v1(uint64_t address);

bool ga_cuda_memory_open_managed(struct ga_allocation *c, uint64_t bytes);

// Rows of which the driver chooses the length: what it really took is known only afterwards, so the
// charge is corrected then.
bool ga_cuda_memory_open_pitched(struct ga_allocation *c, uint64_t width, uint64_t height);
ga_result ga_cuda_memory_settle_pitched(struct ga_allocation *c, ga_result result,
                                        ga_address address, uint64_t bytes, ga_cuda_undo *undo);

// What an address that is freed is of.
enum ga_cuda_freed {
    GA_CUDA_FREED_BLOCK,
    GA_CUDA_FREED_POOLED, // a block of a pool
    GA_CUDA_FREED_HOST,   // memory of a pool in the host
    GA_CUDA_FREED_IMPORT, // another process's
    GA_CUDA_FREED_UNKNOWN,
};
enum ga_cuda_freed ga_cuda_memory_remove_other(struct ga_allocation *c, ga_address address);
static inline enum ga_cuda_freed ga_cuda_memory_remove(struct ga_allocation *c,
                                                       ga_address address) {
    return GA_LIKELY(ga_cuda_allocation_remove(c, address))
               ? GA_CUDA_FREED_BLOCK
               : ga_cuda_memory_remove_other(c, address);
}
// The driver has freed it at once, or refused.
ga_result ga_cuda_memory_freed(const struct ga_allocation *c, enum ga_cuda_freed what,
                               ga_result result);

#endif
