// SPDX-License-Identifier: Apache-2.0
// Virtual memory management: device memory that is created without an address, by handle.
//
// The driver gives it back when nothing refers to it any more and nothing maps it, and so does
// the shim. Reserving addresses costs nothing. A handle that was imported is another process's,
// or another handle's, memory and is not charged here. What is held beyond our sight, by whoever
// imported it, counts as overhead from its release on.
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
// The driver has made a handle for another process's memory.
ga_result ga_cuda_vmm_imported(ga_result result, const ga_memory *handle);

#endif
