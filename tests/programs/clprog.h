// SPDX-License-Identifier: Apache-2.0
// How clprog finds OpenCL's functions: HOW_LINK (linked), HOW_DLSYM (looked up), or HOW_EXTENSION
// (by clGetExtensionFunctionAddress if that has the function, else looked up).
#ifndef CLPROG_H
#define CLPROG_H

#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_1_APIS
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>
#include <CL/cl_ext.h>

// Returns the function of this name, found in the way that was compiled in.
void *cl_function(const char *name);

#ifdef HOW_LINK
#define CL(name) name
#else
#define CL(name) ((__typeof__(&name))cl_function(#name))
#endif

#endif
