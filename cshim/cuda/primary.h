// SPDX-License-Identifier: Apache-2.0
// Primary contexts. Each device has one, which all code in a process shares. The first retain makes
// it, and the last release ends it. Each thread that retains it takes a thread slot. Called by
// hooks.c and green.c.
#ifndef GA_CUDA_PRIMARY_H
#define GA_CUDA_PRIMARY_H

#include "core/root.h"
#include "cuda/driver.h"

// Reports whether the primary context of a device exists.
bool ga_cuda_primary_active(ga_cu_device device);

// Action that a call must take if it needs the primary context.
enum ga_cuda_primary_action {
    GA_PRIMARY_EXISTS,       // nothing: the context exists
    GA_PRIMARY_ASK,          // ask the daemon, let the driver make the context, call
                             // ga_cuda_primary_answered
    GA_PRIMARY_ASK_UNLOCKED, // GA_PRIMARY_ASK in a signal handler that has interrupted the asking
                             // thread
    GA_PRIMARY_REFUSED,      // fail: another thread asked meanwhile and was refused
};
// Returns what the caller must do. Waits while another thread asks for the context.
enum ga_cuda_primary_action ga_cuda_primary_begin(struct ga_root *root, ga_cu_device device);
// Ends the request, and lets the waiting threads continue. refused: the daemon refused the context.
void ga_cuda_primary_answered(struct ga_root *root, ga_cu_device device,
                              enum ga_cuda_primary_action action, bool refused);
// Notes that other code has released the context. From then on only the retains that the library
// has seen keep it.
void ga_cuda_primary_others_released(struct ga_root *root, ga_cu_device device);

// Removes the context and everything in it from the tables, because the driver has ended it.
void ga_cuda_primary_ended(struct ga_root *root, ga_cu_device device);

ga_result ga_cuda_primary_retain(GA_FN_cuDevicePrimaryCtxRetain *real, ga_context *context,
                                 ga_cu_device device);
// Releases the primary context, or resets it (reset true). A reset ends it also if other retains
// exist.
ga_result ga_cuda_primary_end(ga_result (*real)(ga_cu_device), bool reset, ga_cu_device device);

#endif
