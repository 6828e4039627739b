// SPDX-License-Identifier: Apache-2.0
// Counts the host memory that the driver keeps page-locked. It has a cap of its own (core/host.h),
// and counts in no budget, because it is not device memory. Called by hooks.c, async.c and
// memory.c.
#ifndef GA_CUDA_HOST_H
#define GA_CUDA_HOST_H

#include "cuda/allocation.h"

// How a block became page-locked (ga_entry.kind). A block is removed only by the call that matches
// its kind.
enum ga_cuda_host_kind { GA_CUDA_HOST_ALLOCATED = 1, GA_CUDA_HOST_REGISTERED, GA_CUDA_HOST_POOLED };

// Reserves the bytes of a block. The caller then calls the driver, and then ga_cuda_host_settle.
// False: refused.
bool ga_cuda_host_open(struct ga_allocation *c, uint64_t bytes);
// Settles the block after the driver's answer. *at is read only if the driver has succeeded.
ga_result ga_cuda_host_settle(struct ga_allocation *c, ga_result result, void *const *at,
                              enum ga_cuda_host_kind kind);
// Reserves the bytes of a block from a pool in host memory. The block is released in the call that
// frees it, although the free may execute later.
bool ga_cuda_host_open_pooled(struct ga_allocation *c, struct ga_root *root, uint64_t bytes);

// Removes the entry of a block that the program frees. The caller then calls the driver, and then
// ga_cuda_host_freed. False: no such block.
bool ga_cuda_host_remove(struct ga_allocation *c, void *at, enum ga_cuda_host_kind kind);
void ga_cuda_host_freed(const struct ga_allocation *c, ga_result result);

// Removes all blocks of a context that has ended, given its serial number.
void ga_cuda_host_sweep(struct ga_root *root, uint64_t serial);

#endif
