// SPDX-License-Identifier: Apache-2.0
// Takes a slot of each device of an OpenCL context before the driver makes the context. Called by
// hooks.c.
//
// A context ends when neither the program nor an object in it refers to it. A driver of OpenCL 3.0
// reports that (clSetContextDestructorCallback). With an older driver the library counts the
// program's own references, and takes the last release for the end. That is right for programs that
// release everything in a context before the context, as OpenCL 2.2 (4.4) tells them to do.
#ifndef GA_OPENCL_CONTEXT_H
#define GA_OPENCL_CONTEXT_H

#include "core/root.h"
#include "core/slots.h"
#include "opencl/opencl.h"

// The slots of a context that the program is making. A wrapper calls ga_opencl_context_ask or
// ga_opencl_context_ask_type, then the driver, then ga_opencl_context_made.
struct ga_opencl_context_request {
    struct ga_root *root; // NULL: no device of the context is arbitrated
    ga_cl_device any;     // an arbitrated device of the context; NULL: none
    struct ga_slots slots;
};

// Takes a slot of each device. False: refused, and no slot is taken.
bool ga_opencl_context_ask(struct ga_opencl_context_request *s, const ga_cl_device *devices,
                           ga_cl_uint count);
// Takes a slot of each device of a type, on the platform that the properties name. False: refused.
bool ga_opencl_context_ask_type(struct ga_opencl_context_request *s, const intptr_t *properties,
                                ga_cl_bits type);
// Settles the slots after the driver's call. context: the context that the driver made; NULL: the
// driver failed. Returns the program's result. If that is NULL although the driver had made a
// context, *status is set to an error.
ga_cl_context ga_opencl_context_made(const struct ga_opencl_context_request *s,
                                     ga_cl_context context, ga_cl_int *status);

// Call the driver, and count the program's references to the context.
ga_cl_int ga_opencl_context_retain(GA_FN_clRetainContext *real, ga_cl_context context);
ga_cl_int ga_opencl_context_release(GA_FN_clReleaseContext *real, ga_cl_context context);

#endif
