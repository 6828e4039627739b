// SPDX-License-Identifier: Apache-2.0
// Writes down the memory of other processes that the program imports with CUDA (core/import.h). It
// is not charged here. Called by hooks.c and memory.c.
//
// The driver reports the size of an imported block; for memory of another API the program's
// descriptor has it. The size of a handle of cuMemImportFromShareableHandle is known when the
// handle is mapped (cuda/vmm.c).
#ifndef GA_CUDA_IMPORT_H
#define GA_CUDA_IMPORT_H

#include "core/admit.h"
#include "cuda/driver.h"

// Writes down a block that the driver has opened. pool: the imported pool that it is from; NULL:
// another process's block. Returns result.
ga_result ga_cuda_import_opened(ga_result result, const ga_address *address, const ga_pool *pool);
ga_result ga_cuda_import_external(GA_FN_cuImportExternalMemory *real, void **memory,
                                  const void *descriptor);

// Remove the entry of an imported block, or of another API's memory. The caller then calls the
// driver, and then ga_cuda_import_freed. False: it was not imported.
bool ga_cuda_import_remove(struct ga_allocation *c, ga_address address);
bool ga_cuda_import_remove_external(struct ga_allocation *c, void *memory);
void ga_cuda_import_freed(const struct ga_allocation *c, ga_result result);

#endif
