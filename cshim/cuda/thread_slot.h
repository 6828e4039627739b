// SPDX-License-Identifier: Apache-2.0
// Decides when a thread has a slot (core/thread_slot.h) on a context that another thread made: from
// when it first uses the context until no context is current in it, or until it ends.
#ifndef GA_CUDA_THREAD_SLOT_H
#define GA_CUDA_THREAD_SLOT_H

#include "core/root.h"
#include "cuda/driver.h"

// Is called when the calling thread's current context is another one than at its last call. Takes a
// slot if needed, writes the context down (ga_cuda_context_notice), and remembers its serial number
// for the thread. epoch: ga_cuda_context_epoch at a time when the context lived. False: another
// thread has ended the context since.
bool ga_cuda_thread_slot_meet(struct ga_root *root, ga_context context, uint32_t device,
                              uint64_t epoch);
// Must be called after a call that may leave the thread without a current context: then ends its
// slots.
void ga_cuda_thread_slot_settle(struct ga_root *root);

// Wrappers of the calls that change the current context.
ga_result ga_cuda_thread_slot_set(GA_FN_cuCtxSetCurrent *real, ga_context context);
ga_result ga_cuda_thread_slot_pop(GA_FN_cuCtxPopCurrent_v2 *real, ga_context *context);

#endif
