// SPDX-License-Identifier: Apache-2.0
// The CUDA operations that memory/ calls (memory/driver.h), and wrappers of the calls that wait for
// a stream, an event or a context. After such a wait, stream-ordered frees have executed.
#ifndef GA_CUDA_STREAM_ORDER_H
#define GA_CUDA_STREAM_ORDER_H

#include "cuda/driver.h"
#include "memory/pool.h"

extern const struct ga_memory_driver ga_cuda_stream_order;

// Describes a stream for memory/. It must be called before the driver's call on the stream.
struct ga_memory_at ga_cuda_stream_order_at(struct ga_root *root, ga_stream stream);
// Returns the record of a device's graph memory. NULL: no memory.
struct ga_memory_pool *ga_cuda_stream_order_graphs(struct ga_root *root, uint32_t device);

// Call the driver's synchronisation, and clear the frees that have executed. stream: the program's
// argument. effective: the stream that the driver uses (graph.h).
ga_result ga_cuda_sync_stream(GA_FN_cuStreamSynchronize *real, ga_stream effective,
                              ga_stream stream);
ga_result ga_cuda_sync_event(GA_FN_cuEventSynchronize *real, ga_event event);
ga_result ga_cuda_sync_context(GA_FN_cuCtxSynchronize *real);
ga_result ga_cuda_sync_context_v2(GA_FN_cuCtxSynchronize_v2 *real, ga_context context);

#endif
