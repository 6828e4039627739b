// SPDX-License-Identifier: Apache-2.0
// Memory in stream order: allocated from a pool and given back to it as a stream comes to it.
#ifndef GA_CUDA_ASYNC_H
#define GA_CUDA_ASYNC_H

#include "cuda/driver.h"

// The stream that an entry point means by NULL, and that a _ptsz entry point does.
static inline ga_stream ga_cuda_plain(ga_stream stream) {
    return stream ? stream : GA_CUDA_STREAM_LEGACY;
}
static inline ga_stream ga_cuda_ptsz(ga_stream stream) {
    return stream ? stream : GA_CUDA_STREAM_PER_THREAD;
}

// effective is the stream that is meant, where stream is what the program passed.
ga_result ga_cuda_alloc_async(GA_FN_cuMemAllocAsync *real, ga_stream effective, ga_address *address,
                              size_t bytes, ga_stream stream);
ga_result ga_cuda_alloc_from_pool(GA_FN_cuMemAllocFromPoolAsync *real, ga_stream effective,
                                  ga_address *address, size_t bytes, ga_pool pool,
                                  ga_stream stream);
ga_result ga_cuda_free_async(GA_FN_cuMemFreeAsync *real, ga_stream effective, ga_address address,
                             ga_stream stream);

#endif
