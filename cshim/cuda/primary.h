// SPDX-License-Identifier: Apache-2.0
// Primary contexts: one a device, shared by all of a process, made by the first who
// retains it and ended by the last who releases it. Each thread that retains one holds on to it.
#ifndef GA_CUDA_PRIMARY_H
#define GA_CUDA_PRIMARY_H

#include "core/root.h"
#include "cuda/driver.h"

bool ga_cuda_primary_active(ga_cu_device device);

// What a call has to do that needs the primary context.
enum ga_cuda_primary_way {
    GA_PRIMARY_LIVES, // it is there
    GA_PRIMARY_ASK,   // ask for it and have it made, while others wait; ga_cuda_primary_answered
    GA_PRIMARY_ASK_BESIDE, // the same, in a signal handler that interrupted just that
    GA_PRIMARY_REFUSED,    // another thread was refused it meanwhile
};
// Waits while another thread asks for it.
enum ga_cuda_primary_way ga_cuda_primary_begin(struct ga_root *root, ga_cu_device device);
void ga_cuda_primary_answered(struct ga_root *root, ga_cu_device device,
                              enum ga_cuda_primary_way way, bool refused);
// What else kept it may be gone.
void ga_cuda_primary_others_left(struct ga_root *root, ga_cu_device device);

// The driver has ended it.
void ga_cuda_primary_ended(struct ga_root *root, ga_cu_device device);

ga_result ga_cuda_primary_retain(GA_FN_cuDevicePrimaryCtxRetain *real, ga_context *context,
                                 ga_cu_device device);
// reset: it ends whoever has retained it.
ga_result ga_cuda_primary_end(ga_result (*real)(ga_cu_device), bool reset, ga_cu_device device);

#endif
