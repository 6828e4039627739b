// SPDX-License-Identifier: Apache-2.0
// OpenCL contexts. A context takes a slot of each of its devices before the driver makes it, or is
// refused.
//
// A context ends when neither the program nor an object made in it refers to it. A driver of OpenCL
// 3.0 tells when that happens (clSetContextDestructorCallback). With an older driver the library
// counts the program's own references, and takes the last release for the end, because the program
// should release everything in a context before it (OpenCL 2.2, 4.4).
#ifndef GA_OPENCL_CONTEXT_H
#define GA_OPENCL_CONTEXT_H

#include "core/root.h"
#include "core/slots.h"
#include "opencl/opencl.h"

// The slots of a context that the program is making. A wrapper calls ask or ask_type, then the
// driver, then made.
struct ga_opencl_slots {
    struct ga_root *root; // NULL: no device of it is arbitrated
    ga_cl_device any;     // an arbitrated device of it; NULL: none
    struct ga_slots slots;
};

// Takes a slot of each device. False: refused, and nothing is taken.
bool ga_opencl_context_ask(struct ga_opencl_slots *s, const ga_cl_device *devices,
                           ga_cl_uint count);
// Takes a slot of each device of a type, on the platform that the properties name. False: refused.
bool ga_opencl_context_ask_type(struct ga_opencl_slots *s, const intptr_t *properties,
                                ga_cl_bits type);
// Settles the slots after the driver's call. context: what the driver made; NULL: it refused.
// Returns what the program gets; *status is set to an error if that is NULL and the driver had made
// a context.
ga_cl_context ga_opencl_context_made(const struct ga_opencl_slots *s, ga_cl_context context,
                                     ga_cl_int *status);

ga_cl_int ga_opencl_context_retain(GA_FN_clRetainContext *real, ga_cl_context context);
ga_cl_int ga_opencl_context_release(GA_FN_clReleaseContext *real, ga_cl_context context);

#endif
