// SPDX-License-Identifier: Apache-2.0
// Memory that no call names, as far as a call shows it: modules and libraries, which say nowhere
// how much they take, and the heaps and buffers of a context, which do.
//
// A load is measured (cuda/measure.h), and what it took is charged before the program has it;
// beyond the budget it is undone and refused. Where it would have to wait, it is undone, waited
// for, and done again. What is loaded through private tables, or later than its load, the daemon
// finds.
#ifndef GA_CUDA_MODULE_H
#define GA_CUDA_MODULE_H

#include "core/root.h"
#include "cuda/driver.h"

ga_result ga_cuda_limit_set(GA_FN_cuCtxSetLimit *real, int limit, size_t value);

// from: an image, or the path of one.
ga_result ga_cuda_module_load_data(GA_FN_cuModuleLoadData *real, ga_module *module,
                                   const void *from);
ga_result ga_cuda_module_load_with(GA_FN_cuModuleLoadDataEx *real, ga_module *module,
                                   const void *image, unsigned int count, int *options,
                                   void **values);
ga_result ga_cuda_module_unload(GA_FN_cuModuleUnload *real, ga_module module);

ga_result ga_cuda_library_load(GA_FN_cuLibraryLoadData *real, ga_library_handle *library,
                               const void *from, int *jit, void **jit_values, unsigned int jits,
                               int *options, void **values, unsigned int count);
ga_result ga_cuda_library_unload(GA_FN_cuLibraryUnload *real, ga_library_handle library);

#endif
