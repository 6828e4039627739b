// SPDX-License-Identifier: Apache-2.0
// OpenCL as an interface.
#ifndef GA_OPENCL_HOOKS_H
#define GA_OPENCL_HOOKS_H

#include "core/interface.h"

extern struct ga_interface ga_opencl_interface;

// What a layer has in place of a row's function, or NULL: nothing (layer.h).
void *ga_opencl_layer_wrapper(size_t row);

#endif
