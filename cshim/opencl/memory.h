// SPDX-License-Identifier: Apache-2.0
// Memory objects: buffers, and whatever else is a cl_mem.
#ifndef GA_OPENCL_MEMORY_H
#define GA_OPENCL_MEMORY_H

#include "core/admit.h"
#include "opencl/opencl.h"

// Asks for the bytes of an object on the first device of its context, which is charged with them.
// In a context for several devices the driver makes copies on the others when they use the object:
// these the devices' own figures charge. False: refused, and nothing was taken.
bool ga_opencl_memory_ask(struct ga_claim *c, ga_cl_context context, ga_cl_bits flags,
                          uint64_t bytes, uint32_t kind);
// The driver has made it, or not (NULL); what the program gets.
ga_cl_mem ga_opencl_memory_made(struct ga_claim *c, ga_cl_mem memory, ga_cl_int *status);

#endif
