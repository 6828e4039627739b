// SPDX-License-Identifier: Apache-2.0
// Allocation in stream order. A wrapper of an interface calls ga_memory_async_open, then the
// driver, then ga_memory_async_finish. If finish returns GA_MEMORY_AGAIN, the wrapper repeats these
// three steps once, with GA_MEMORY_ACQUIRE_NEW. pool.h has the accounting, and its lock.
#ifndef GA_MEMORY_ASYNC_H
#define GA_MEMORY_ASYNC_H

#include "memory/pool.h"

struct ga_memory_async {
    struct ga_memory_acquisition acquisition; // root NULL: no bytes of a device are acquired
    uint64_t turn; // ga_memory_pool_turn before the device's pool was read
    bool named;    // true: the program named the pool; false: it is the device's pool
    uint32_t
        full; // ga_admit_again, set by the caller; not 0: all bytes are requested as new memory
};

enum ga_memory_opened {
    GA_MEMORY_REFUSED,  // nothing is acquired; the program's call must fail
    GA_MEMORY_ACQUIRED, // the caller must call ga_memory_async_finish when the driver has answered
    GA_MEMORY_OF_HOST,  // nothing is acquired: the pool is of host memory
    GA_MEMORY_OF_NONE,  // nothing is acquired: the pool's device is not arbitrated
};
// Acquires the bytes of an allocation from a pool, before the driver's call. handle: the pool that
// the program named; NULL: the device's pool. at: the stream. device: also the device of a named
// pool that is seen for the first time, if the driver does not say where the pool is.
enum ga_memory_opened ga_memory_async_open(struct ga_memory_async *a, struct ga_root *root,
                                           const struct ga_memory_at *at, int device, void *handle,
                                           uint64_t bytes, enum ga_memory_acquire_how how);

// Result of ga_memory_async_finish: what the wrapper must do next.
enum ga_memory_outcome {
    GA_MEMORY_DONE,  // return the driver's result
    GA_MEMORY_AGAIN, // the pool grew too much, and the block is freed: try once more, with
                     // GA_MEMORY_ACQUIRE_NEW
    GA_MEMORY_OVER,  // no memory for the block's entry, and the block is freed: return "out of
                     // memory"
};
// Finishes an allocation after the driver's call. address: the block; 0: the driver refused. If the
// driver does not free a block that must be freed, the program gets the block (GA_MEMORY_DONE).
enum ga_memory_outcome ga_memory_async_finish(struct ga_memory_async *a, uint64_t address);

#endif
