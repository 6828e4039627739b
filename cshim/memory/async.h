// SPDX-License-Identifier: Apache-2.0
// An allocation in stream order: opened, then the driver, then settled. An interface's wrapper does
// these three steps, and repeats them once if the second answer is GA_MEMORY_AGAIN.
#ifndef GA_MEMORY_ASYNC_H
#define GA_MEMORY_ASYNC_H

#include "memory/pool.h"

struct ga_memory_async {
    struct ga_memory_take take; // root NULL: nothing is taken of a device
    uint64_t turn; // of ga_memory_pool_turn, from before the device's pool was looked up
    bool named;    // the program named the pool
};

enum ga_memory_opened {
    GA_MEMORY_REFUSED, // nothing was taken
    GA_MEMORY_TAKEN,   // ga_memory_async_settle follows when the driver has answered
    GA_MEMORY_OF_HOST, // the pool is of host memory, or of a device that is not arbitrated: nothing
    GA_MEMORY_OF_NONE, // was taken
};
// Takes the bytes of an allocation on a device from the pool that the program named (handle), or
// from the device's pool (NULL). at: the stream.
enum ga_memory_opened ga_memory_async_open(struct ga_memory_async *a, struct ga_root *root,
                                           const struct ga_memory_at *at, int device, void *handle,
                                           uint64_t bytes, enum ga_memory_take_how how);

// How an allocation ended that the driver has answered.
enum ga_memory_outcome {
    GA_MEMORY_DONE,  // the driver's answer is the program's
    GA_MEMORY_AGAIN, // the driver took more than there was room for, and has it back: ask for all
    GA_MEMORY_OVER,  // there is no memory to remember the block by, and the driver has it back
};
// address: 0: the driver refused.
enum ga_memory_outcome ga_memory_async_settle(struct ga_memory_async *a, uint64_t address);

#endif
