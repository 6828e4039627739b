// SPDX-License-Identifier: Apache-2.0
// What a program is told of the device's memory: its budget.
#ifndef GA_CUDA_QUERY_H
#define GA_CUDA_QUERY_H

#include "core/budget.h"
#include "cuda/driver.h"

// Of the driver's device, of `capacity` bytes as far as that is known (UINT64_MAX: not); and of the
// current context's. False: the driver's own answer stands.
bool ga_cuda_query(ga_cu_device ordinal, uint64_t capacity, struct ga_budget *answer);
bool ga_cuda_query_current(uint64_t capacity, struct ga_budget *answer);

#endif
