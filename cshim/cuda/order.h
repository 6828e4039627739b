// SPDX-License-Identifier: Apache-2.0
// CUDA's driver as memory/ sees it, and the calls of the program that wait for a stream, after
// which frees in stream order have executed.
#ifndef GA_CUDA_ORDER_H
#define GA_CUDA_ORDER_H

#include "cuda/driver.h"
#include "memory/pool.h"

extern const struct ga_memory_driver ga_cuda_order;

// Describes a stream before the driver is asked.
struct ga_memory_at ga_cuda_order_at(struct ga_root *root, ga_stream stream);
// Returns the record of a device's graph memory. NULL: no memory.
struct ga_memory_pool *ga_cuda_order_graphs(struct ga_root *root, uint32_t device);

// Call the driver's synchronisation, and clear what has executed by it. effective is the stream
// that is meant, where stream is what the program passed.
ga_result ga_cuda_sync_stream(GA_FN_cuStreamSynchronize *real, ga_stream effective,
                              ga_stream stream);
ga_result ga_cuda_sync_event(GA_FN_cuEventSynchronize *real, ga_event event);
ga_result ga_cuda_sync_context(GA_FN_cuCtxSynchronize *real);
ga_result ga_cuda_sync_context_v2(GA_FN_cuCtxSynchronize_v2 *real, ga_context context);

#endif
