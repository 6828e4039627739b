// SPDX-License-Identifier: Apache-2.0
// Answers a program's questions about a device's memory with the program's budget. Called by the
// wrapper of clGetDeviceInfo in hooks.c.
#ifndef GA_OPENCL_QUERY_H
#define GA_OPENCL_QUERY_H

#include "opencl/opencl.h"

ga_cl_int ga_opencl_device_info(GA_FN_clGetDeviceInfo *real, ga_cl_device device, ga_cl_uint what,
                                size_t size, void *value, size_t *needed);

#endif
