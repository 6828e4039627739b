// SPDX-License-Identifier: Apache-2.0
// Charges blocks of shared virtual memory, given their addresses. The program frees them itself, or
// by a command in a queue. Called by hooks.c.
#ifndef GA_OPENCL_SVM_H
#define GA_OPENCL_SVM_H

#include "opencl/opencl.h"

ga_cl_address ga_opencl_svm_alloc(GA_FN_clSVMAlloc *real, ga_cl_context context, ga_cl_bits flags,
                                  size_t size, ga_cl_uint alignment);
void ga_opencl_svm_free(GA_FN_clSVMFree *real, ga_cl_context context, ga_cl_address address);
ga_cl_int ga_opencl_svm_enqueue_free(GA_FN_clEnqueueSVMFree *real, ga_cl_queue queue,
                                     ga_cl_uint count, ga_cl_address *addresses, ga_cl_free *free,
                                     void *arg, ga_cl_uint waits, const ga_cl_event *wait_for,
                                     ga_cl_event *event);

#endif
