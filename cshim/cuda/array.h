// SPDX-License-Identifier: Apache-2.0
// Arrays and mipmapped arrays: charged with the bytes of their elements.
#ifndef GA_CUDA_ARRAY_H
#define GA_CUDA_ARRAY_H

#include "cuda/allocation.h"

// What a descriptor of any version says.
struct ga_cuda_array_shape {
    uint64_t width;
    uint64_t height; // 0: none
    uint64_t depth;  // 0: none. With LAYERED or CUBEMAP it counts layers or faces
    int format;
    uint32_t channels;
    uint32_t flags;
};

// The versions of a descriptor differ in the widths of their fields. Of none: the driver refuses
// it.
#define GA_CUDA_ARRAY_FLAT(d)                                                                      \
    ((d) ? (struct ga_cuda_array_shape){(d)->width, (d)->height, 0, (d)->format, (d)->channels, 0} \
         : (struct ga_cuda_array_shape){0})
#define GA_CUDA_ARRAY_DEEP(d)                                                                      \
    ((d) ? (struct ga_cuda_array_shape){(d)->width, (d)->height, (d)->depth, (d)->format,          \
                                        (d)->channels, (d)->flags}                                 \
         : (struct ga_cuda_array_shape){0})

// Call ga_cuda_array_open, then the driver, then ga_cuda_array_created. key: the array's handle, in
// the space of its kind. An array whose memory is mapped later (sparse, or with its mapping
// deferred) takes none: that memory is charged where it was created. False: refused.
bool ga_cuda_array_open(struct ga_allocation *c, struct ga_cuda_array_shape shape,
                        unsigned int levels);
ga_result ga_cuda_array_created(struct ga_allocation *c, ga_result result, struct ga_key key);

#endif
