// SPDX-License-Identifier: Apache-2.0
// Which device the core knows OpenCL's by: that of its UUID. A driver that computes on the
// processor has none; which device it is counted on the core says (core/driver.h). A part of a
// device (clCreateSubDevices) says what the whole says.
#ifndef GA_OPENCL_DEVICE_H
#define GA_OPENCL_DEVICE_H

#include "core/root.h"
#include "opencl/opencl.h"

// The number of a device; −1: it cannot be arbitrated.
int ga_opencl_device_number(struct ga_root *root, ga_cl_device device);
// Whether it computes on the processor, whichever device it is counted on.
bool ga_opencl_device_computes_here(ga_cl_device device);
// The same of one that is about to be used: −1 also for the processor, where the daemon does not
// arbitrate it.
int ga_opencl_device_used(struct ga_root *root, ga_cl_device device);
// The number of the device that the memory of a context is charged to: its first that can be used,
// and which that is. −1: there is none.
int ga_opencl_device_first(struct ga_root *root, ga_cl_context context, ga_cl_device *device);
// Whether the driver of a device is of OpenCL 3.0, or later.
bool ga_opencl_device_is_3(ga_cl_device device);

#endif
