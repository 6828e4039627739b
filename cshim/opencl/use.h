// SPDX-License-Identifier: Apache-2.0
// Objects of contexts for several devices: each is charged to the first of them when it is made,
// and to another one when a queue of that uses it for the first time. Then the driver makes a copy
// there (or moves it, which nobody tells).
//
// So a command that is enqueued can be refused, with the status that the specification has for it:
// "if there is a failure to allocate memory for the data store associated with" an object. As long
// as no context is for several devices, the functions here are not called: that is one word,
// ga_opencl_charge_may_have_parts.
#ifndef GA_OPENCL_USE_H
#define GA_OPENCL_USE_H

#include "core/root.h"
#include "opencl/charge.h"
#include "opencl/opencl.h"

// A context is asked for that is for these devices.
void ga_opencl_use_context(const bool devices[GA_DEVICES]);
// An object has been made, and this is its charge.
void ga_opencl_use_object(struct ga_root *root, ga_cl_mem memory, struct ga_opencl_charge *charge);
// An object has been made (or not: NULL) of another one's memory (NULL: of none). It is handed on.
ga_cl_mem ga_opencl_use_part(ga_cl_mem of, ga_cl_mem memory);

// A command that the program enqueues: one of the two, then the driver, then done.
struct ga_opencl_use {
    struct ga_root *root; // NULL: nothing is to be charged
    uint32_t device;
    struct ga_opencl_charge *taken;
};

// Charges the device of a queue with the objects that it uses now for the first time. False:
// refused, and nothing was taken.
bool ga_opencl_use_list(struct ga_opencl_use *u, ga_cl_queue queue, ga_cl_uint count,
                        const ga_cl_mem *list);
bool ga_opencl_use_kernel(struct ga_opencl_use *u, ga_cl_queue queue, ga_cl_object kernel);
// The driver has taken the command, or not.
void ga_opencl_use_done(struct ga_opencl_use *u, bool taken);

// What a kernel's arguments are, of which nobody tells later.
ga_cl_int ga_opencl_use_argument(GA_FN_clSetKernelArg *real, ga_cl_object kernel, ga_cl_uint index,
                                 size_t size, const void *value);
ga_cl_int ga_opencl_use_address(GA_FN_clSetKernelArgSVMPointer *real, ga_cl_object kernel,
                                ga_cl_uint index, const void *value);
ga_cl_object ga_opencl_use_clone(GA_FN_clCloneKernel *real, ga_cl_object kernel, ga_cl_int *status);

#endif
