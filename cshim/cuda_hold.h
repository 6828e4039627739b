// SPDX-License-Identifier: Apache-2.0
// When a thread holds a context that another one made: from its first use of it, until it
// has none current any more, or ends.
#ifndef GA_CUDA_HOLD_H
#define GA_CUDA_HOLD_H

#include "driver.h"
#include "root.h"

// The thread is about to use a context. False: it is to have no slot.
bool ga_cuda_hold_context(struct ga_root *root, ga_context context);
// A call is over after which no context may be current.
void ga_cuda_hold_settle(struct ga_root *root);

ga_result ga_cuda_hold_pop(GA_FN_cuCtxPopCurrent_v2 *real, ga_context *context);

#endif
