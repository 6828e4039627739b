// SPDX-License-Identifier: Apache-2.0
// Host memory that the driver keeps page-locked: counted, under a cap of its own. It is
// no device memory, and no budget's.
#ifndef GA_CUDA_HOST_H
#define GA_CUDA_HOST_H

#include "driver.h"
#include "root.h"

ga_result ga_cuda_host_alloc_v1(GA_FN_cuMemAllocHost *real, void **at, unsigned int bytes);
ga_result ga_cuda_host_alloc(GA_FN_cuMemAllocHost_v2 *real, void **at, size_t bytes);
ga_result ga_cuda_host_alloc_flags(GA_FN_cuMemHostAlloc *real, void **at, size_t bytes,
                                   unsigned int flags);
ga_result ga_cuda_host_free(GA_FN_cuMemFreeHost *real, void *at);
ga_result ga_cuda_host_register(GA_FN_cuMemHostRegister_v2 *real, void *at, size_t bytes,
                                unsigned int flags);
ga_result ga_cuda_host_unregister(GA_FN_cuMemHostUnregister *real, void *at);

// What lived in a context has gone with it: the entries of this ticket leave the table.
void ga_cuda_host_sweep(struct ga_root *root, uint64_t ticket);

#endif
