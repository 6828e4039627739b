// SPDX-License-Identifier: Apache-2.0
// The operations of a driver that memory/ needs. An interface whose
// driver has stream-ordered memory fills in one struct ga_memory_driver and passes it to the
// functions of memory/, which call no driver in any other way.
//
// Handles of the driver (of a pool, a stream, a context) are pointers here; NULL: no handle.
// An operation that returns bool returns false if the driver lacks the function, or refuses.
#ifndef GA_MEMORY_DRIVER_H
#define GA_MEMORY_DRIVER_H

#include "core/root.h"

struct ga_memory_pool;
struct ga_memory_at;

struct ga_memory_driver {
    // Pools.
    // Reads how many bytes a pool has reserved of its device. Like trim, it must also do this for
    // the graph memory of a device: kind GA_MEMORY_POOL_OF_GRAPHS, no handle.
    bool (*reserved)(struct ga_root *root, const struct ga_memory_pool *pool, uint64_t *bytes);
    // Has the driver give up what a pool has reserved beyond keep bytes and its blocks.
    bool (*trim)(struct ga_root *root, const struct ga_memory_pool *pool, uint64_t keep);
    // Returns the pool that allocations on a device come from if the program names none.
    void *(*pool_of_device)(struct ga_root *root, uint32_t device);
    // Returns the pool that a block came from.
    void *(*pool_of_block)(uint64_t address);
    // Returns the number of the device whose default or current pool this is. If it is the pool of
    // no device, returns the argument otherwise.
    int (*device_of_pool)(struct ga_root *root, void *pool, int otherwise);
    // Frees a block at once, not in stream order. The program has not been given its address.
    bool (*free)(uint64_t address);

    // Streams.
    // Reports whether a stream has executed all work that it was given. Returns false also if the
    // driver must not be asked about the stream: it may have ended, or a capture may depend on it.
    // The caller holds ga_memory_state.asking, so that no stream ends and no capture begins
    // meanwhile.
    bool (*passed)(struct ga_root *root, const struct ga_memory_at *at);
    // Has the driver call a function after the work that the stream was given so far.
    bool (*call_after)(void *stream, void (*function)(void *), void *argument);
    // Reports whether the context of a stream has ended since *at was filled in. It is called
    // inside a move (ga_move_begin) with the pools locked: it must not call the driver or wait.
    bool (*ended)(struct ga_root *root, const struct ga_memory_at *at);

    void *_Atomic *library; // dlopen handle of the driver; NULL in it: not found yet
};

#endif
