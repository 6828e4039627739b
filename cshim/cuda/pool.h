// SPDX-License-Identifier: Apache-2.0
// Wrappers for the calls that make, trim and destroy pools of stream-ordered memory. Called by
// hooks.c. memory/pool.h accounts for pools.
#ifndef GA_CUDA_POOL_H
#define GA_CUDA_POOL_H

#include "cuda/driver.h"
#include "memory/pool.h"

// Makes the record of a pool that the driver has made, or has returned as the pool of a location,
// which may be in host memory. Returns result.
ga_result ga_cuda_pool_record(ga_result result, const ga_pool *pool,
                              const struct ga_cu_location *at, int type);
ga_result ga_cuda_pool_destroy(GA_FN_cuMemPoolDestroy *real, ga_pool pool);
ga_result ga_cuda_pool_trim(GA_FN_cuMemPoolTrimTo *real, ga_pool pool, size_t keep);
ga_result ga_cuda_pool_trim_graphs(GA_FN_cuDeviceGraphMemTrim *real, ga_cu_device device);

#endif
