// SPDX-License-Identifier: Apache-2.0
#include "cuda/driver.h"

#include "cuda/state.h"

void *_Atomic ga_driver_functions[GA_ROWS];
void *_Atomic ga_driver_handle;
_Atomic size_t ga_cuda_place;
_Atomic uint32_t ga_cuda_captures;
