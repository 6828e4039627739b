// SPDX-License-Identifier: Apache-2.0
// Charges OpenCL memory objects: buffers, images, pipes, all that a cl_mem stands for. The wrappers
// in hooks.c call ga_opencl_memory_ask, then the driver, then ga_opencl_memory_made.
#ifndef GA_OPENCL_MEMORY_H
#define GA_OPENCL_MEMORY_H

#include "core/admit.h"
#include "opencl/opencl.h"

// Reserves the bytes of an object on the first device of its context. If the context has several
// devices, the driver makes copies on the other devices when they use the object. The daemon sees
// the copies in the devices' readings. False: refused, and nothing is reserved.
bool ga_opencl_memory_ask(struct ga_allocation *c, ga_cl_context context, ga_cl_bits flags,
                          uint64_t bytes, uint32_t kind);
// Settles the bytes after the driver's call. memory: the object; NULL: the driver failed. Returns
// the program's result.
ga_cl_mem ga_opencl_memory_made(struct ga_allocation *c, ga_cl_mem memory, ga_cl_int *status);

#endif
