// SPDX-License-Identifier: Apache-2.0
#include "opencl/opencl.h"

void *_Atomic ga_opencl_functions[GA_OPENCL_ROWS];
void *_Atomic ga_opencl_below[GA_OPENCL_ROWS];
