// SPDX-License-Identifier: Apache-2.0
// Images: memory objects whose size is computed.
#ifndef GA_OPENCL_IMAGE_H
#define GA_OPENCL_IMAGE_H

#include "opencl/memory.h"

// ga_opencl_memory_ask for an image. What is made of another object's memory takes none.
bool ga_opencl_image_open(struct ga_allocation *c, ga_cl_context context, ga_cl_bits flags,
                          const struct ga_cl_format *format, const struct ga_cl_image *image);
// The same in the form of OpenCL 1.0; depth 1: of two dimensions.
bool ga_opencl_image_open_v1(struct ga_allocation *c, ga_cl_context context, ga_cl_bits flags,
                             const struct ga_cl_format *format, size_t width, size_t height,
                             size_t depth);

#endif
