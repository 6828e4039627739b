// SPDX-License-Identifier: Apache-2.0
// Allocators of CUDA memory that keep what their programs have freed, until the driver refuses a
// request.
#ifndef GA_CUDA_ALLOCATORS_H
#define GA_CUDA_ALLOCATORS_H

#include <stdbool.h>

// Reports whether the process has loaded such an allocator (ga_interface.keeps_freed). Reads the
// list of mapped files, which takes some ten microseconds or, with thousands of mappings, a few
// milliseconds. False also if the kernel does not show that list, as where /proc is not mounted.
bool ga_allocators_loaded(void);

#endif
