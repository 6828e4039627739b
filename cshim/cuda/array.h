// SPDX-License-Identifier: Apache-2.0
// Charges CUDA arrays and mipmapped arrays with the bytes of their elements, computed from the
// descriptor. Called by the wrappers in hooks.c.
#ifndef GA_CUDA_ARRAY_H
#define GA_CUDA_ARRAY_H

#include "cuda/allocation.h"

// Shape of an array, read from a descriptor of any version.
struct ga_cuda_array_shape {
    uint64_t width;
    uint64_t height; // 0: none
    uint64_t depth;  // 0: none. With LAYERED or CUBEMAP: the number of layers or faces
    int format;
    uint32_t channels;
    uint32_t flags;
};

// Convert a descriptor to a shape. The versions of the descriptor differ in the widths of their
// fields. A NULL descriptor gives an empty shape, and the driver refuses the call.
#define GA_CUDA_ARRAY_FLAT(d)                                                                      \
    ((d) ? (struct ga_cuda_array_shape){(d)->width, (d)->height, 0, (d)->format, (d)->channels, 0} \
         : (struct ga_cuda_array_shape){0})
#define GA_CUDA_ARRAY_DEEP(d)                                                                      \
    ((d) ? (struct ga_cuda_array_shape){(d)->width, (d)->height, (d)->depth, (d)->format,          \
                                        (d)->channels, (d)->flags}                                 \
         : (struct ga_cuda_array_shape){0})

// Reserves the bytes of an array. The caller then calls the driver, and then ga_cuda_array_created.
// An array whose memory is mapped later (sparse, or with deferred mapping) reserves nothing: its
// memory is charged when it is created. False: refused.
bool ga_cuda_array_open(struct ga_allocation *c, struct ga_cuda_array_shape shape,
                        unsigned int levels);
// Settles the array after the driver's answer. key: the array's handle, in the key space of arrays
// or of mipmapped arrays.
ga_result ga_cuda_array_created(struct ga_allocation *c, ga_result result, struct ga_key key);

#endif
