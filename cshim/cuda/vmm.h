// SPDX-License-Identifier: Apache-2.0
// Wrappers for virtual memory management (cuMemCreate, cuMemMap): device memory that has a handle,
// and an address only while it is mapped. Called by hooks.c.
//
// The driver frees such memory when no handle and no mapping refers to it, and the library returns
// its bytes at the same time. Reserved addresses cost nothing. Imported memory is charged to the
// process, or under the handle, that made it. If another process still has imported the memory when
// this process releases it, its bytes count as the device's overhead from then on.
#ifndef GA_CUDA_VMM_H
#define GA_CUDA_VMM_H

#include "core/root.h"
#include "cuda/driver.h"

ga_result ga_cuda_vmm_create(GA_FN_cuMemCreate *real, ga_memory *handle, size_t bytes,
                             const struct ga_cu_memory_properties *properties, uint64_t flags);
ga_result ga_cuda_vmm_release(GA_FN_cuMemRelease *real, ga_memory handle);
ga_result ga_cuda_vmm_retain(GA_FN_cuMemRetainAllocationHandle *real, ga_memory *handle,
                             void *address);
ga_result ga_cuda_vmm_map(GA_FN_cuMemMap *real, ga_address address, size_t bytes, size_t offset,
                          ga_memory handle, uint64_t flags);
ga_result ga_cuda_vmm_unmap(GA_FN_cuMemUnmap *real, ga_address address, size_t bytes);
// Writes down the handle that the driver has made for another process's memory. Returns result.
ga_result ga_cuda_vmm_imported(ga_result result, const ga_memory *handle);

#endif
