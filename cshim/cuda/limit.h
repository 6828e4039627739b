// SPDX-License-Identifier: Apache-2.0
// The device heap and the printf buffer of a context, whose sizes cuCtxSetLimit sets: they are
// charged before the driver takes them. What other memory no call names (modules with their
// variables, stacks, local memory) the daemon finds by the device's figures, and charges to the
// process within two seconds.
#ifndef GA_CUDA_LIMIT_H
#define GA_CUDA_LIMIT_H

#include "cuda/claim.h"

ga_result ga_cuda_limit_set(GA_FN_cuCtxSetLimit *real, int limit, size_t value);

#endif
