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
// The driver has made a handle that stands for no memory of this process: another process's, or a
// multicast object.
ga_result ga_cuda_vmm_made(ga_result result, const ga_memory *handle, bool imported);

// What handles and mappings stand for.
struct ga_cuda_vmm_memory;
// It is kept, released or not, until it is let go as often. NULL: none of ours.
typedef struct ga_cuda_vmm_memory *ga_cuda_vmm_keeper(struct ga_root *root, uint64_t by);
ga_cuda_vmm_keeper ga_cuda_vmm_keep;    // by its handle
ga_cuda_vmm_keeper ga_cuda_vmm_keep_at; // by an address where it is mapped
void ga_cuda_vmm_keep_more(struct ga_root *root, struct ga_cuda_vmm_memory *memory);
void ga_cuda_vmm_let_go(struct ga_root *root, struct ga_cuda_vmm_memory *memory);
// The same once a stream has got there: what it is charged with may come back then.
void ga_cuda_vmm_leave(struct ga_root *root, struct ga_cuda_vmm_memory *memory);
void ga_cuda_vmm_left(struct ga_root *root, struct ga_cuda_vmm_memory *memory);
// What is done when an object ends, which nothing keeps any more then. The caller keeps it.
typedef void ga_cuda_vmm_ended(struct ga_root *root, struct ga_key key);
void ga_cuda_vmm_at_end(struct ga_root *root, struct ga_cuda_vmm_memory *object,
                        ga_cuda_vmm_ended *ended);
// Return its key in root.blocks, and the ordinal of its device if it lies on one.
struct ga_key ga_cuda_vmm_key(const struct ga_cuda_vmm_memory *memory);
ga_cu_device ga_cuda_vmm_ordinal(struct ga_root *root, const struct ga_cuda_vmm_memory *memory);

#endif
