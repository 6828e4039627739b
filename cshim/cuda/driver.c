// SPDX-License-Identifier: Apache-2.0
// Defines the variables that driver.h declares.
#include "cuda/driver.h"

void *_Atomic ga_driver_functions[GA_ROWS];
void *_Atomic ga_driver_handle;
_Atomic uint32_t ga_cuda_captures;
