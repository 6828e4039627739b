// SPDX-License-Identifier: Apache-2.0
// Finds the number by which the core knows an OpenCL device: that of the device's UUID. A device of
// a driver that computes on the CPU has no UUID; core/driver.h says which number it is counted
// under. A sub-device (clCreateSubDevices) has the number of the whole device.
#ifndef GA_OPENCL_DEVICE_H
#define GA_OPENCL_DEVICE_H

#include "core/root.h"
#include "opencl/opencl.h"

// Returns the number of a device; −1: it cannot be arbitrated.
int ga_opencl_device_number(struct ga_root *root, ga_cl_device device);
// Reports whether a device computes on the CPU, whatever number it is counted under.
bool ga_opencl_device_computes_here(ga_cl_device device);
// Returns the number of a device that the program is about to use. Unlike ga_opencl_device_number,
// returns −1 also for the CPU if the daemon does not arbitrate the CPU.
int ga_opencl_device_used(struct ga_root *root, ga_cl_device device);
// Returns the number of the device that the memory of a context is charged to: the context's first
// device whose ga_opencl_device_used is not −1, which is stored in *device. −1: there is none.
int ga_opencl_device_first(struct ga_root *root, ga_cl_context context, ga_cl_device *device);
// Reports whether the driver of a device is of OpenCL 3.0 or later.
bool ga_opencl_device_is_3(ga_cl_device device);

#endif
