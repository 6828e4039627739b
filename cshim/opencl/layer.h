// SPDX-License-Identifier: Apache-2.0
// The library as a layer of OpenCL's loader (OPENCL_LAYERS; extension cl_loader_layers): between
// the loader's functions, which programs call, and the drivers. It sees calls that the wrappers do
// not see: where another preload comes first and finds the loader's functions by ways of its own,
// and where the library is not preloaded at all.
//
// What a wrapper has counted that the program called comes by here as well, and goes on.
#ifndef GA_OPENCL_LAYER_H
#define GA_OPENCL_LAYER_H

#include "opencl/opencl.h"

#define GA_CL_LAYER_API_VERSION 0x4240u
#define GA_CL_LAYER_NAME 0x4241u
#define GA_CL_LAYER_API_VERSION_100 100u

__attribute__((visibility("default"))) ga_cl_int clGetLayerInfo(ga_cl_uint what, size_t size,
                                                                void *value, size_t *needed);
// below: the functions that a call goes on to, as many as the loader knows. The layer's own come
// back, NULL nowhere.
__attribute__((visibility("default"))) ga_cl_int
clInitLayer(ga_cl_uint count, void *const *below, ga_cl_uint *own_count, void *const **own);

#endif
