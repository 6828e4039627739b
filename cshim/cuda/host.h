// SPDX-License-Identifier: Apache-2.0
// Host memory that the driver keeps page-locked: counted, under a cap of its own. It is
// no device memory, and no budget's.
#ifndef GA_CUDA_HOST_H
#define GA_CUDA_HOST_H

#include "cuda/allocation.h"

// How a block came to be page-locked (ga_entry.kind), so that the wrong call gives nothing back.
enum ga_cuda_host_kind { GA_CUDA_HOST_ALLOCATED = 1, GA_CUDA_HOST_REGISTERED, GA_CUDA_HOST_POOLED };

// Open, then the driver, then settle. False: refused.
bool ga_cuda_host_open(struct ga_allocation *c, uint64_t bytes);
// at is looked at where the driver has accepted it.
ga_result ga_cuda_host_settle(struct ga_allocation *c, ga_result result, void *const *at,
                              enum ga_cuda_host_kind kind);
// The same of a pool in the host. It is given back with the call that frees it, though the free may
// be late.
bool ga_cuda_host_open_pooled(struct ga_allocation *c, struct ga_root *root, uint64_t bytes);

// The reverse: give, then the driver, then given. False: none such.
bool ga_cuda_host_remove(struct ga_allocation *c, void *at, enum ga_cuda_host_kind kind);
void ga_cuda_host_freed(const struct ga_allocation *c, ga_result result);

// What lived in a context has gone with it: the entries of this ticket leave the table.
void ga_cuda_host_sweep(struct ga_root *root, uint64_t serial);

#endif
