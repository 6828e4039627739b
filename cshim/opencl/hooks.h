// SPDX-License-Identifier: Apache-2.0
// OpenCL as an interface.
#ifndef GA_OPENCL_HOOKS_H
#define GA_OPENCL_HOOKS_H

#include "core/interface.h"

extern struct ga_interface ga_opencl_interface;

#endif
