// SPDX-License-Identifier: Apache-2.0
// Answers a program's questions about a device's memory with the program's budget. Called by the
// wrappers of cuMemGetInfo and cuDeviceTotalMem in hooks.c.
#ifndef GA_CUDA_QUERY_H
#define GA_CUDA_QUERY_H

#include "core/budget.h"
#include "cuda/driver.h"

// Read the budget of a device, or of the current context's device. capacity: size of the device's
// memory in bytes; UINT64_MAX: not known. False: the program gets the driver's answer.
bool ga_cuda_query(ga_cu_device ordinal, uint64_t capacity, struct ga_budget *answer);
bool ga_cuda_query_current(uint64_t capacity, struct ga_budget *answer);

#endif
