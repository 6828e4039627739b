// SPDX-License-Identifier: Apache-2.0
// Device memory: admit, call the driver, record or roll back; and the reverse.
#ifndef GA_CUDA_MEMORY_H
#define GA_CUDA_MEMORY_H

#include "driver.h"

// The keys of root.blocks are addresses. What goes by a handle is marked in the highest bits, so
// that none is taken for another, whatever a driver makes its handles of.
#define GA_CUDA_KEY_ARRAY (1ull << 62)
#define GA_CUDA_KEY_MIPMAP (2ull << 62)
#define GA_CUDA_KEY_MEMORY (3ull << 62)

// The stream that a _ptsz entry point means by NULL.
static inline ga_stream ga_cuda_ptsz(ga_stream stream) {
    return stream ? stream : GA_CUDA_STREAM_PER_THREAD;
}

ga_result ga_cuda_alloc_v1(GA_FN_cuMemAlloc *real, uint32_t *address, unsigned int bytes);
ga_result ga_cuda_alloc(GA_FN_cuMemAlloc_v2 *real, ga_address *address, size_t bytes);
ga_result ga_cuda_alloc_pitch_v1(GA_FN_cuMemAllocPitch *real, uint32_t *address,
                                 unsigned int *pitch, unsigned int width, unsigned int height,
                                 unsigned int element);
ga_result ga_cuda_alloc_pitch(GA_FN_cuMemAllocPitch_v2 *real, ga_address *address, size_t *pitch,
                              size_t width, size_t height, unsigned int element);
ga_result ga_cuda_alloc_managed(GA_FN_cuMemAllocManaged *real, ga_address *address, size_t bytes,
                                unsigned int flags);
// effective is the stream that is meant, where stream is what the program passed.
ga_result ga_cuda_alloc_async(GA_FN_cuMemAllocAsync *real, ga_address *address, size_t bytes,
                              ga_stream stream, ga_stream effective);
ga_result ga_cuda_alloc_from_pool(GA_FN_cuMemAllocFromPoolAsync *real, ga_address *address,
                                  size_t bytes, ga_pool pool, ga_stream stream,
                                  ga_stream effective);
ga_result ga_cuda_free_v1(GA_FN_cuMemFree *real, uint32_t address);
ga_result ga_cuda_free(GA_FN_cuMemFree_v2 *real, ga_address address);
ga_result ga_cuda_free_async(GA_FN_cuMemFreeAsync *real, ga_address address, ga_stream stream,
                             ga_stream effective);

#endif
