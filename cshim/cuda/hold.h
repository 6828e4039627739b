// SPDX-License-Identifier: Apache-2.0
// When a thread holds a context that another one made: from its first use of it, until it
// has none current any more, or ends.
#ifndef GA_CUDA_HOLD_H
#define GA_CUDA_HOLD_H

#include "core/root.h"
#include "cuda/driver.h"

// A thread meets one that is new to it, made current out of our sight; counts it, as
// ga_cuda_context_notice, and remembers where its memory is charged. epoch: of
// ga_cuda_context_epoch, from when the context lived. False: another thread has ended it.
bool ga_cuda_hold_meet(struct ga_root *root, ga_context context, uint32_t device, uint64_t epoch);
// A call is over after which no context may be current.
void ga_cuda_hold_settle(struct ga_root *root);

// The first call that shows a context that was made out of our sight.
ga_result ga_cuda_hold_set(GA_FN_cuCtxSetCurrent *real, ga_context context);
ga_result ga_cuda_hold_pop(GA_FN_cuCtxPopCurrent_v2 *real, ga_context *context);

#endif
