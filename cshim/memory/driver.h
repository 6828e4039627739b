// SPDX-License-Identifier: Apache-2.0
// The operations of a driver that memory/ needs. An interface whose driver has memory in stream
// order fills one of these, and hands it to the functions of memory/, which know no driver.
//
// A handle of the driver's (a pool, a stream, a context) is a pointer here, and NULL is none.
// Functions that return bool return false if the driver cannot do it, or refuses.
#ifndef GA_MEMORY_DRIVER_H
#define GA_MEMORY_DRIVER_H

#include "core/root.h"

struct ga_memory_pool;
struct ga_memory_at;

struct ga_memory_driver {
    // Pools. A record of the device's graph memory has no handle, but its kind.
    bool (*reserved)(struct ga_root *root, const struct ga_memory_pool *pool, uint64_t *bytes);
    bool (*trim)(struct ga_root *root, const struct ga_memory_pool *pool, uint64_t keep);
    void *(*pool_of_device)(struct ga_root *root, uint32_t device);
    void *(*pool_of_block)(uint64_t address);
    // Returns the number of the device whose default or current pool this is, else otherwise.
    int (*device_of_pool)(struct ga_root *root, void *pool, int otherwise);
    // Frees a block that the program never saw, at once.
    bool (*free)(uint64_t address);

    // Streams.
    // Whether a stream has executed all that it was given. false also if it must not be asked: the
    // stream may have ended, or a capture may depend on it. ga_memory_state.asking is locked, so
    // that no stream ends and no capture begins meanwhile.
    bool (*passed)(struct ga_root *root, const struct ga_memory_at *at);
    // Has the driver call a function when the stream has executed all that it was given.
    bool (*call_after)(void *stream, void (*function)(void *), void *argument);
    // Whether the context of a stream has ended since *at was filled in. Called in a move.
    bool (*ended)(struct ga_root *root, const struct ga_memory_at *at);

    void *_Atomic *library; // the loader's handle of the driver
};

#endif
