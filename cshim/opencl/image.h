// SPDX-License-Identifier: Apache-2.0
// Computes the bytes of an image, and reserves them. Called by hooks.c.
#ifndef GA_OPENCL_IMAGE_H
#define GA_OPENCL_IMAGE_H

#include "opencl/memory.h"

// Reserves the bytes of an image, as ga_opencl_memory_ask does. An image on another object's memory
// reserves nothing.
bool ga_opencl_image_open(struct ga_allocation *c, ga_cl_context context, ga_cl_bits flags,
                          const struct ga_cl_format *format, const struct ga_cl_image *image);
// Reserves the bytes of an image for the functions of OpenCL 1.0. depth 1: a two-dimensional image.
bool ga_opencl_image_open_v1(struct ga_allocation *c, ga_cl_context context, ga_cl_bits flags,
                             const struct ga_cl_format *format, size_t width, size_t height,
                             size_t depth);

#endif
