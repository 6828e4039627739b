// SPDX-License-Identifier: Apache-2.0
// What CUDA imports of other processes' memory (core/import.h).
//
// The driver tells the size of a block, a descriptor that of another API's memory. What a handle of
// cuMemImportFromShareableHandle stands for shows when it is mapped (cuda/vmm.c).
#ifndef GA_CUDA_IMPORT_H
#define GA_CUDA_IMPORT_H

#include "core/admit.h"
#include "cuda/driver.h"

// The driver has opened a block: of another process's, or of a pool of one.
ga_result ga_cuda_import_opened(ga_result result, const ga_address *address, const ga_pool *pool);
ga_result ga_cuda_import_external(GA_FN_cuImportExternalMemory *real, void **memory,
                                  const void *descriptor);

// The reverse, of a block's address or of another API's memory: give, then the driver, then given.
// False: it was not imported.
bool ga_cuda_import_remove(struct ga_allocation *c, ga_address address);
bool ga_cuda_import_remove_external(struct ga_allocation *c, void *memory);
void ga_cuda_import_freed(const struct ga_allocation *c, ga_result result);

#endif
