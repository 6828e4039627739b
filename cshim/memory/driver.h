// SPDX-License-Identifier: Apache-2.0
// Operations of a driver that memory/ needs. An interface whose driver has stream-ordered memory
// fills in one struct ga_memory_driver, and passes it to the functions of memory/. These call a
// driver in no other way.
//
// Handles of the driver (of a pool, a stream, a context) are pointers here; NULL: no handle. An
// operation that returns bool returns false if the driver lacks the function, or refuses. No
// operation is called with the pools locked, except ended.
#ifndef GA_MEMORY_DRIVER_H
#define GA_MEMORY_DRIVER_H

#include "core/root.h"

struct ga_memory_pool;
struct ga_memory_at;

struct ga_memory_driver {
    // Pools.
    // Reads how many bytes a pool has reserved of its device. This and trim must also work for the
    // graph memory of a device: kind GA_MEMORY_POOL_OF_GRAPHS, no handle.
    bool (*reserved)(struct ga_root *root, const struct ga_memory_pool *pool, uint64_t *bytes);
    // Makes the driver free what a pool has reserved beyond its blocks and keep bytes.
    bool (*trim)(struct ga_root *root, const struct ga_memory_pool *pool, uint64_t keep);
    // Returns the pool that allocations on a device come from if the program names none.
    void *(*pool_of_device)(struct ga_root *root, uint32_t device);
    // Returns the pool that a block came from.
    void *(*pool_of_block)(uint64_t address);
    // Returns the number of the device whose default or current pool this is; otherwise: it is the
    // pool of no device.
    int (*device_of_pool)(struct ga_root *root, void *pool, int otherwise);
    // Frees a block at once, not in stream order. The program does not know its address yet.
    bool (*free)(uint64_t address);

    // Streams.
    // Reports whether a stream has executed all its work. Also returns false if the driver must not
    // be asked: the stream may have ended, or a capture may depend on it. The caller holds
    // ga_memory_state.asking, so that no stream ends and no capture begins meanwhile.
    bool (*passed)(struct ga_root *root, const struct ga_memory_at *at);
    // Makes the driver call a function after the stream's present work.
    bool (*call_after)(void *stream, void (*function)(void *), void *argument);
    // Reports whether the context of a stream has ended since *at was filled in. Called inside a
    // move (ga_move_begin) with the pools locked, so it must neither call the driver nor wait.
    bool (*ended)(struct ga_root *root, const struct ga_memory_at *at);

    void *_Atomic *library; // dlopen handle of the driver; *library NULL: not found yet
};

#endif
