// SPDX-License-Identifier: Apache-2.0
#include "opencl/opencl.h"

#include "opencl/state.h"

void *_Atomic ga_opencl_functions[GA_OPENCL_ROWS];
void *_Atomic ga_opencl_below[GA_OPENCL_ROWS];
_Atomic size_t ga_opencl_place;
