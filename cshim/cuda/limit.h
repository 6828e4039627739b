// SPDX-License-Identifier: Apache-2.0
// Charges the device heap and the printf buffer of a context, whose sizes cuCtxSetLimit sets,
// before the driver allocates them. Called by hooks.c. Other memory that no call names is not
// charged here: modules with their variables, stacks, local memory. The daemon finds that memory in
// the device's readings within two seconds, and charges it to the process.
#ifndef GA_CUDA_LIMIT_H
#define GA_CUDA_LIMIT_H

#include "cuda/allocation.h"

// Sets a limit of the current context through the driver, and charges its bytes.
ga_result ga_cuda_limit_set(GA_FN_cuCtxSetLimit *real, int limit, size_t value);

#endif
