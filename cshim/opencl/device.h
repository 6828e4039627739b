// SPDX-License-Identifier: Apache-2.0
// Finds the number of an OpenCL device (core/device.h) by the device's UUID. A device that computes
// on the CPU has no UUID; core/driver.h gives its number. A sub-device (clCreateSubDevices) has the
// number of the whole device. Used by context.c, memory.c and query.c.
#ifndef GA_OPENCL_DEVICE_H
#define GA_OPENCL_DEVICE_H

#include "core/root.h"
#include "opencl/opencl.h"

// Returns the number of a device; −1: it cannot be arbitrated.
int ga_opencl_device_number(struct ga_root *root, ga_cl_device device);
// Reports whether a device computes on the CPU, whatever device its memory is counted on.
bool ga_opencl_device_is_cpu(ga_cl_device device);
// Returns the number of a device that the program is about to use. −1: the device is not
// arbitrated; that includes the CPU if the daemon does not arbitrate the CPU.
int ga_opencl_device_arbitrated(struct ga_root *root, ga_cl_device device);
// Returns the number of the device that a context's memory is charged to: the first device of the
// context that is arbitrated, which is stored in *device. −1: there is none.
int ga_opencl_device_first(struct ga_root *root, ga_cl_context context, ga_cl_device *device);
// Reports whether the driver of a device is of OpenCL 3.0 or later.
bool ga_opencl_device_is_3(ga_cl_device device);

#endif
