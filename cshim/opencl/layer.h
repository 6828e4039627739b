// SPDX-License-Identifier: Apache-2.0
// The library as a layer of OpenCL's loader (OPENCL_LAYERS; extension cl_loader_layers): it stands
// between the loader's functions, which programs call, and the drivers. It sees calls that miss the
// wrappers: if another preloaded library comes first and finds the loader's functions by other
// means, or if this library is not preloaded at all.
//
// A call that a wrapper has counted also reaches the layer, which passes it on.
#ifndef GA_OPENCL_LAYER_H
#define GA_OPENCL_LAYER_H

#include "opencl/opencl.h"

#define GA_CL_LAYER_API_VERSION 0x4240u
#define GA_CL_LAYER_NAME 0x4241u
#define GA_CL_LAYER_API_VERSION_100 100u

__attribute__((visibility("default"))) ga_cl_int clGetLayerInfo(ga_cl_uint what, size_t size,
                                                                void *value, size_t *needed);
// Is called by the loader. next: the functions that the layer must call, as many as the loader
// knows. *own becomes the layer's table of functions, which has no NULL.
__attribute__((visibility("default"))) ga_cl_int
clInitLayer(ga_cl_uint count, void *const *next, ga_cl_uint *own_count, void *const **own);

#endif
