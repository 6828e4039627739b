// SPDX-License-Identifier: Apache-2.0
// What CUDA's side knows in a process. It lies behind the root, in the pages that a forked child
// finds zeroed, and what was said of the root holds for it: all zero means "nothing done yet".
#ifndef GA_CUDA_STATE_H
#define GA_CUDA_STATE_H

#include "core/root.h"
#include "cuda/cuda.h"

// CUDA's spaces of keys (core/table.h).
enum {
    GA_SPACE_CUDA_ARRAY = 2,    // array, by its handle
    GA_SPACE_CUDA_MIPMAP = 3,   // mipmapped array, by its handle
    GA_SPACE_CUDA_HEAP = 5,     // device heap, by its context
    GA_SPACE_CUDA_BUFFER = 6,   // printf buffer, by its context
    GA_SPACE_CUDA_EXTERNAL = 7, // imported memory, by its handle
    GA_SPACE_CUDA_GREEN = 8,    // green context, by its handle
    GA_SPACES_CUDA_END,
};

// What is known of a device's primary context: primary.c.
struct ga_primary {
    struct ga_mutex turn; // of a call that makes it or may end it
    // The thread that asks the daemon for it, and has the driver make it; the others wait for that.
    struct ga_mutex asking;
    _Atomic uint32_t refusals; // how often it was refused
    struct ga_spin lock;       // guards what follows
    uint32_t uses;             // retained, and not released since
    bool others;               // it was there before the first of these
};

struct ga_cuda_state {
    struct ga_table contexts;     // by handle
    struct ga_spin contexts_lock; // of who puts one in

    // Read by each call, and written seldom.
    _Atomic uint64_t context_epoch; // counts contexts that ended
    _Atomic uint32_t device_count;  // 0: not asked yet

    _Atomic uint8_t numbers[GA_DEVICES];     // + 1, by ordinal: device.c
    _Atomic uint8_t ordinals[GA_DEVICES];    // + 1, by number
    _Atomic uint32_t alignment[GA_DEVICES];  // memory.c: texture alignment + 1, or 0
    struct ga_primary primaries[GA_DEVICES]; // by ordinal
};

#define GA_CUDA_STATE ((size_t)0) // its place: ga_root_state
static inline struct ga_cuda_state *ga_cuda(struct ga_root *root) {
    return ga_root_state(root, GA_CUDA_STATE);
}

#endif
