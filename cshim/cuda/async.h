// SPDX-License-Identifier: Apache-2.0
// Wrappers for stream-ordered allocations and frees (cuMemAllocAsync, cuMemFreeAsync), called by
// hooks.c. The accounting is in memory/async.h and memory/pending.h.
#ifndef GA_CUDA_ASYNC_H
#define GA_CUDA_ASYNC_H

#include "cuda/driver.h"

// Return the stream that the driver uses. For stream 0 that is the legacy default stream, or in an
// entry point *_ptsz the calling thread's default stream.
static inline ga_stream ga_cuda_plain(ga_stream stream) {
    return stream ? stream : GA_CUDA_STREAM_LEGACY;
}
static inline ga_stream ga_cuda_ptsz(ga_stream stream) {
    return stream ? stream : GA_CUDA_STREAM_PER_THREAD;
}

// stream: the program's argument. effective: the stream that the driver uses.
ga_result ga_cuda_alloc_async(GA_FN_cuMemAllocAsync *real, ga_stream effective, ga_address *address,
                              size_t bytes, ga_stream stream);
ga_result ga_cuda_alloc_from_pool(GA_FN_cuMemAllocFromPoolAsync *real, ga_stream effective,
                                  ga_address *address, size_t bytes, ga_pool pool,
                                  ga_stream stream);
ga_result ga_cuda_free_async(GA_FN_cuMemFreeAsync *real, ga_stream effective, ga_address address,
                             ga_stream stream);

#endif
