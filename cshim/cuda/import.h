// SPDX-License-Identifier: Apache-2.0
// Memory of other processes that this one has: it is charged to its owner, and what the device may
// show of it for this process is no memory that no call names. How much that is the page says.
//
// The driver tells the size of a block, a descriptor that of another API's memory. What a handle of
// cuMemImportFromShareableHandle stands for shows when it is mapped (cuda/vmm.c). Each import
// counts, since nothing tells whether two are of the same memory.
#ifndef GA_CUDA_IMPORT_H
#define GA_CUDA_IMPORT_H

#include "core/root.h"
#include "cuda/driver.h"

// The driver has opened a block: of another process's, or of a pool of one.
ga_result ga_cuda_import_opened(ga_result result, const ga_address *address, const ga_pool *pool);
ga_result ga_cuda_import_close(GA_FN_cuIpcCloseMemHandle *real, ga_address address);
ga_result ga_cuda_import_external(GA_FN_cuImportExternalMemory *real, void **memory,
                                  const void *descriptor);
ga_result ga_cuda_import_destroy(GA_FN_cuDestroyExternalMemory *real, void *memory);

// Around a free of an address that is no block of this process's. False: nor was it imported.
bool ga_cuda_import_begin_free(struct ga_root *root, ga_address address, struct ga_entry *entry);
void ga_cuda_import_end_free(struct ga_root *root, ga_result result, const struct ga_entry *entry);

// What was imported in a context, or a pool, that has ended: its entries have this ticket or
// handle.
void ga_cuda_import_sweep(struct ga_root *root, uint64_t ended);

#endif
