// SPDX-License-Identifier: Apache-2.0
// Defines the variables that opencl.h declares.
#include "opencl/opencl.h"

void *_Atomic ga_opencl_functions[GA_OPENCL_ROWS];
void *_Atomic ga_opencl_next[GA_OPENCL_ROWS];
