// SPDX-License-Identifier: Apache-2.0
// Contexts: each takes a slot of every device that it is for, or is refused.
//
// One ends when nothing refers to it any more: the program, or what was made in it. The driver says
// when (clSetContextDestructorCallback), if it is of OpenCL 3.0. Of an older one the program's own
// references are counted, and its last release is taken for the end (OpenCL 2.2, 4.4: what was made
// in it should be released before).
#ifndef GA_OPENCL_CONTEXT_H
#define GA_OPENCL_CONTEXT_H

#include "core/root.h"
#include "core/slots.h"
#include "opencl/opencl.h"

// One that the program asks for: ask, then the driver, then made.
struct ga_opencl_slots {
    struct ga_root *root; // NULL: not arbitrated, the driver alone decides
    ga_cl_device any;     // one of its devices
    struct ga_slots slots;
};

// Takes them. False: refused, and nothing was taken.
bool ga_opencl_context_ask(struct ga_opencl_slots *s, const ga_cl_device *devices,
                           ga_cl_uint count);
// The same for all devices of a type, of the platform that the properties say.
bool ga_opencl_context_ask_type(struct ga_opencl_slots *s, const intptr_t *properties,
                                ga_cl_bits type);
// The driver has made it, or not (NULL); what the program gets.
ga_cl_context ga_opencl_context_made(const struct ga_opencl_slots *s, ga_cl_context context,
                                     ga_cl_int *status);

ga_cl_int ga_opencl_context_retain(GA_FN_clRetainContext *real, ga_cl_context context);
ga_cl_int ga_opencl_context_release(GA_FN_clReleaseContext *real, ga_cl_context context);

#endif
