// SPDX-License-Identifier: Apache-2.0
// The state of cshim/cuda in a process. It lies behind the root (core/root.h), in pages that fork()
// zeroes in the child. So all fields are 0 in a process that has not called the driver.
#ifndef GA_CUDA_STATE_H
#define GA_CUDA_STATE_H

#include "core/root.h"
#include "cuda/cuda.h"

// Key spaces of CUDA (core/table.h).
enum {
    GA_SPACE_CUDA_ARRAY = 2,    // array, by its handle
    GA_SPACE_CUDA_MIPMAP = 3,   // mipmapped array, by its handle
    GA_SPACE_CUDA_HEAP = 5,     // device heap, by its context
    GA_SPACE_CUDA_BUFFER = 6,   // printf buffer, by its context
    GA_SPACE_CUDA_EXTERNAL = 7, // imported memory, by its handle
    GA_SPACE_CUDA_GREEN = 8,    // green context, by its handle
    GA_SPACES_CUDA_END,
};

// State of a device's primary context. primary.c uses it.
struct ga_primary {
    struct ga_mutex driver_call; // held during a driver call that makes the context or may end it
    // Held by the thread that asks the daemon for the context and has the driver make it. Other
    // threads that need the context wait for it.
    struct ga_mutex asking;
    _Atomic uint32_t refusals; // number of times that the daemon refused the context
    struct ga_spin lock;       // guards the two fields that follow
    uint32_t uses;             // number of retains that were not released yet
    bool others;               // the context existed before the program's first retain
};

struct ga_cuda_state {
    struct ga_table contexts;     // contexts; the key is the handle
    struct ga_spin contexts_lock; // held while an entry is looked up and then written

    // Each call reads these; they are seldom written.
    _Atomic uint64_t
        context_epoch; // number of contexts that have ended or whose handle left the table
    _Atomic uint32_t device_count; // 0: the driver was not asked yet

    _Atomic uint8_t
        numbers[GA_DEVICES]; // gpuarb's number + 1, by CUDA ordinal: device.c; 0: unknown
    _Atomic uint8_t ordinals[GA_DEVICES]; // CUDA ordinal + 1, by gpuarb's number; 0: unknown
    _Atomic uint32_t
        alignment[GA_DEVICES]; // texture alignment in bytes + 1: memory.c; 0: not asked
    struct ga_primary primaries[GA_DEVICES]; // one for each device, at its ordinal
};

#define GA_CUDA_STATE ((size_t)0) // offset of this state behind the root (ga_root_state)
static inline struct ga_cuda_state *ga_cuda(struct ga_root *root) {
    return ga_root_state(root, GA_CUDA_STATE);
}

#endif
