// SPDX-License-Identifier: Apache-2.0
// Which device the core knows OpenCL's by: that of its UUID. The processor has none; it goes by one
// of its own, the same on every machine. A part of a device (clCreateSubDevices) says what the
// whole says.
#ifndef GA_OPENCL_DEVICE_H
#define GA_OPENCL_DEVICE_H

#include "core/root.h"
#include "opencl/opencl.h"

// The number of a device; −1: it cannot be arbitrated.
int ga_opencl_device_number(struct ga_root *root, ga_cl_device device);
// Whether the number is the processor's.
bool ga_opencl_device_is_processor(struct ga_root *root, uint32_t number);
// The same of one that is about to be used: −1 also for the processor, where the daemon does not
// arbitrate it.
int ga_opencl_device_used(struct ga_root *root, ga_cl_device device);
// The same of the device that the memory of a context is charged to: its first.
int ga_opencl_device_of(struct ga_root *root, ga_cl_context context);
// Whether the driver of a device is of OpenCL 3.0, or later.
bool ga_opencl_device_is_3(ga_cl_device device);

#endif
