// SPDX-License-Identifier: Apache-2.0
// Primary contexts: one a device, shared by all of a process, made by the first who
// retains it and ended by the last who releases it. Each thread that retains one holds on to it.
#ifndef GA_CUDA_PRIMARY_H
#define GA_CUDA_PRIMARY_H

#include "driver.h"
#include "root.h"

bool ga_cuda_primary_active(ga_cu_device device);
// The calling thread has retained it.
bool ga_cuda_primary_held(struct ga_root *root, uint32_t device);
// The primary context of a device as far as it was noticed; 0 when it was not.
uint64_t ga_cuda_primary_of(struct ga_root *root, ga_cu_device device);
// The call is over that may have ended it; ticket is ga_cuda_context_mark's.
void ga_cuda_primary_settle(struct ga_root *root, ga_cu_device device, uint64_t context,
                            uint64_t ticket, bool ended);

ga_result ga_cuda_primary_retain(GA_FN_cuDevicePrimaryCtxRetain *real, ga_context *context,
                                 ga_cu_device device);
ga_result ga_cuda_primary_release(GA_FN_cuDevicePrimaryCtxRelease_v2 *real, ga_cu_device device);
ga_result ga_cuda_primary_reset(GA_FN_cuDevicePrimaryCtxReset_v2 *real, ga_cu_device device);

#endif
