// SPDX-License-Identifier: Apache-2.0
// Charges the device heap and the printf buffer of a context, whose sizes cuCtxSetLimit sets,
// before the driver takes them. Other memory that no call names (modules with their variables,
// stacks, local memory) is not charged here: the daemon finds it in the device's readings, and
// charges it to the process within two seconds.
#ifndef GA_CUDA_LIMIT_H
#define GA_CUDA_LIMIT_H

#include "cuda/allocation.h"

ga_result ga_cuda_limit_set(GA_FN_cuCtxSetLimit *real, int limit, size_t value);

#endif
