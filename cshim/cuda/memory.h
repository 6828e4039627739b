// SPDX-License-Identifier: Apache-2.0
// Device memory: admit, call the driver, record or roll back; and the reverse.
#ifndef GA_CUDA_MEMORY_H
#define GA_CUDA_MEMORY_H

#include "cuda/driver.h"

ga_result ga_cuda_alloc_v1(GA_FN_cuMemAlloc *real, uint32_t *address, unsigned int bytes);
ga_result ga_cuda_alloc(GA_FN_cuMemAlloc_v2 *real, ga_address *address, size_t bytes);
ga_result ga_cuda_alloc_pitch_v1(GA_FN_cuMemAllocPitch *real, uint32_t *address,
                                 unsigned int *pitch, unsigned int width, unsigned int height,
                                 unsigned int element);
ga_result ga_cuda_alloc_pitch(GA_FN_cuMemAllocPitch_v2 *real, ga_address *address, size_t *pitch,
                              size_t width, size_t height, unsigned int element);
ga_result ga_cuda_alloc_managed(GA_FN_cuMemAllocManaged *real, ga_address *address, size_t bytes,
                                unsigned int flags);
ga_result ga_cuda_free_v1(GA_FN_cuMemFree *real, uint32_t address);
ga_result ga_cuda_free(GA_FN_cuMemFree_v2 *real, ga_address address);

#endif
