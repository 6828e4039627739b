// SPDX-License-Identifier: Apache-2.0
// Declares OpenCL's struct ga_interface, which hook/library.c reads, and the functions of the
// layer.
#ifndef GA_OPENCL_HOOKS_H
#define GA_OPENCL_HOOKS_H

#include "core/interface.h"

extern struct ga_interface ga_opencl_interface;

// Returns the layer's function for a row (layer.h); NULL: the layer does not wrap it.
void *ga_opencl_layer_wrapper(size_t row);

#endif
