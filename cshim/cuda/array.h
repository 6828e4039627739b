// SPDX-License-Identifier: Apache-2.0
// Arrays and mipmapped arrays: charged with the bytes of their elements.
#ifndef GA_CUDA_ARRAY_H
#define GA_CUDA_ARRAY_H

#include "cuda/claim.h"

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

// One on its way.
struct ga_cuda_array_claim {
    struct ga_claim c;
    struct ga_root *later; // its memory is mapped later; NULL otherwise
    bool whole;            // and to all of it at once
};

// Call ga_cuda_array_open, then the driver, then ga_cuda_array_created. key: the array's handle, in
// the space of its kind. False: refused.
bool ga_cuda_array_open(struct ga_cuda_array_claim *c, struct ga_cuda_array_shape shape,
                        unsigned int levels);
ga_result ga_cuda_array_created(struct ga_cuda_array_claim *c, ga_result result, struct ga_key key);

// One that is about to end, or will not after all: give, then the driver, then given.
struct ga_cuda_array_ending {
    struct ga_claim c;
    bool ours;
    struct ga_cuda_bound *bound;
};
void ga_cuda_array_give(struct ga_cuda_array_ending *e, struct ga_key key);
ga_result ga_cuda_array_given(const struct ga_cuda_array_ending *e, ga_result result);

#endif
