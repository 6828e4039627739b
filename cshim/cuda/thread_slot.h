// SPDX-License-Identifier: Apache-2.0
// Decides when a thread has a slot (core/thread_slot.h) on a context that another thread made. The
// thread has it from its first use of the context until no context is current in the thread, or
// until the thread ends. Called by hooks.c and teardown.c.
#ifndef GA_CUDA_THREAD_SLOT_H
#define GA_CUDA_THREAD_SLOT_H

#include "core/root.h"
#include "cuda/driver.h"

// Is called when the calling thread's current context differs from that of its last call. Takes a
// slot if needed, inserts the context (ga_cuda_context_notice), and stores its serial number for
// the thread. epoch: ga_cuda_context_epoch at a time when the context existed. False: another
// thread has ended the context since.
bool ga_cuda_thread_slot_first_use(struct ga_root *root, ga_context context, uint32_t device,
                                   uint64_t epoch);
// Ends the thread's slots if the thread has no current context. Must be called after each call that
// may leave the thread without one.
void ga_cuda_thread_slot_release_unused(struct ga_root *root);

// Wrappers of the calls that change the current context.
ga_result ga_cuda_thread_slot_set(GA_FN_cuCtxSetCurrent *real, ga_context context);
ga_result ga_cuda_thread_slot_pop(GA_FN_cuCtxPopCurrent_v2 *real, ga_context *context);

#endif
