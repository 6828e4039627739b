// SPDX-License-Identifier: Apache-2.0
// Contexts: noticed when they are made or first met, and what lived in one leaves
// the tables with it.
#ifndef GA_CUDA_CONTEXT_H
#define GA_CUDA_CONTEXT_H

#include "driver.h"
#include "root.h"

// Counts a context that was not known; tells the daemon.
void ga_cuda_context_notice(struct ga_root *root, ga_context context, uint32_t device,
                            uint8_t kind);

ga_result ga_cuda_context_create(GA_FN_cuCtxCreate_v2 *real, ga_context *context,
                                 unsigned int flags, ga_cu_device device);
ga_result ga_cuda_context_create_v3(GA_FN_cuCtxCreate_v3 *real, ga_context *context, void *affinity,
                                    int count, unsigned int flags, ga_cu_device device);
ga_result ga_cuda_context_create_v4(GA_FN_cuCtxCreate_v4 *real, ga_context *context,
                                    void *parameters, unsigned int flags, ga_cu_device device);
ga_result ga_cuda_context_destroy(GA_FN_cuCtxDestroy_v2 *real, ga_context context);
ga_result ga_cuda_primary_retain(GA_FN_cuDevicePrimaryCtxRetain *real, ga_context *context,
                                 ga_cu_device device);
ga_result ga_cuda_primary_release(GA_FN_cuDevicePrimaryCtxRelease_v2 *real, ga_cu_device device);
ga_result ga_cuda_primary_reset(GA_FN_cuDevicePrimaryCtxReset_v2 *real, ga_cu_device device);

#endif
