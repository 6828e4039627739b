// SPDX-License-Identifier: Apache-2.0
// CUDA as an interface, and the wrappers that hooks.def generates.
#ifndef GA_HOOKS_H
#define GA_HOOKS_H

#include "core/interface.h"
#include "cuda/driver.h"

extern struct ga_interface ga_cuda_interface;

// The driver's own resolver: it answers, and the pointer is translated.
ga_result ga_cuda_get_proc_address(GA_FN_cuGetProcAddress *real, const char *name, void **pfn,
                                   int version, uint64_t flags);
ga_result ga_cuda_get_proc_address_v2(GA_FN_cuGetProcAddress_v2 *real, const char *name, void **pfn,
                                      int version, uint64_t flags, int *status);

#endif
