// SPDX-License-Identifier: Apache-2.0
// An allocation in stream order. A wrapper of an interface calls
// ga_memory_async_open, then the driver, then ga_memory_async_finish. If settle returns
// GA_MEMORY_AGAIN, the wrapper repeats these three steps once, with GA_MEMORY_ACQUIRE_NEW.
#ifndef GA_MEMORY_ASYNC_H
#define GA_MEMORY_ASYNC_H

#include "memory/pool.h"

struct ga_memory_async {
    struct ga_memory_acquisition acquisition; // its root NULL: no bytes of a device are taken
    uint64_t turn; // ga_memory_pool_turn before the device's pool was looked up
    bool named;    // the program named the pool; false: it is the device's pool
};

enum ga_memory_opened {
    GA_MEMORY_REFUSED,  // nothing is taken; the program's call must fail
    GA_MEMORY_ACQUIRED, // the caller must call ga_memory_async_finish when the driver has answered
    GA_MEMORY_OF_HOST,  // nothing is taken: the pool is of host memory
    GA_MEMORY_OF_NONE,  // nothing is taken: the pool is on a device that is not arbitrated
};
// Takes the bytes of an allocation from a pool, before the driver is asked. handle: the pool that
// the program named; NULL: the pool of device. at: the stream. device also is that of a named pool
// that is met for the first time, if the driver does not say where it is.
enum ga_memory_opened ga_memory_async_open(struct ga_memory_async *a, struct ga_root *root,
                                           const struct ga_memory_at *at, int device, void *handle,
                                           uint64_t bytes, enum ga_memory_acquire_how how);

// The step that the wrapper takes after the driver has answered an allocation.
enum ga_memory_outcome {
    GA_MEMORY_DONE,  // returns the driver's result
    GA_MEMORY_AGAIN, // the pool grew by more than there is room for, and the library has freed the
                     // block: asks once more, with GA_MEMORY_ACQUIRE_NEW
    GA_MEMORY_OVER, // there was no memory for the entry of the block, and the library has freed the
                    // block: returns "out of memory"
};
// Settles an allocation. address: the block; 0: the driver refused. If the driver does not free a
// block that it should have back, the program gets the block (GA_MEMORY_DONE).
enum ga_memory_outcome ga_memory_async_finish(struct ga_memory_async *a, uint64_t address);

#endif
