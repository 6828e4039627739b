// SPDX-License-Identifier: Apache-2.0
// The sums of each pool in bytes: live, freed (by stream) and charge. This file owns the records
// and their lock. pool.h says what each sum means, and sets the charge; pending.h says when a free
// counts as executed.
#ifndef GA_MEMORY_SUMS_H
#define GA_MEMORY_SUMS_H

#include "core/root.h"
#include "memory/state.h"

enum ga_memory_pool_kind {
    GA_MEMORY_POOL_ORDINARY,
    GA_MEMORY_POOL_OF_GRAPHS, // of a device: it has no handle
    GA_MEMORY_POOL_NONE,      // of a device: blocks of no pool that were freed in stream order, and
                              // blocks of a pool that the driver does not name
    GA_MEMORY_POOL_UNUSED,    // stands for no pool
};

// A pool of the driver's. Guarded by ga_memory_pools.lock, with two exceptions: next never changes,
// and device and kind do not change while the record is in use. A record is never freed. It stands
// for its pool as long as the pool has a handle, live or freed bytes, or a use: a thread that looks
// up a pool gets a use of it, and releases that when it has done with the record. After that its
// kind is GA_MEMORY_POOL_UNUSED, and the next new pool gets the record.
//
// A call that asks the driver about the pool counts in asking from before it reads the handle until
// the driver has answered. A thread that destroys the pool takes the handle out of the record and
// then waits until asking is 0.
struct ga_memory_pool {
    struct ga_memory_pool *next;
    const struct ga_memory_driver *driver;
    void *handle; // NULL: none, or the program destroys it: the driver must not be asked about it
    uint32_t uses;
    uint32_t asking;
    int device; // number; −1: a device that is not arbitrated; or GA_MEMORY_POOL_IN_HOST
#define GA_MEMORY_POOL_IN_HOST (-2)
    enum ga_memory_pool_kind kind;
    uint16_t tag; // the session that the sums belong to
    uint64_t live, freed, charge;
    uint64_t asked;   // part of live: blocks of allocations that are in the driver
    uint64_t blocks;  // number of these blocks
    uint64_t largest; // size of the largest freed block; at most charge less live when the pool was
                      // last read
    // Reserved bytes that are not charged: the library did not see them taken, or they were charged
    // in an earlier session.
    uint64_t stale;
    uint64_t turn;        // number of changes so far: blocks taken, and times that charge fell
    uint64_t untrimmed;   // turn at which trimming gave fewer bytes than wanted
    uint64_t readings;    // number of readings of its reserved bytes that have begun
    uint64_t applied;     // number of the reading that charge is from
    uint64_t reserved;    // bytes of that reading
    uint64_t reserved_at; // turn of that reading; UINT64_MAX: a block was taken beside it
    struct {              // what ga_root.pooled, ga_device.late and .kept contain of this pool
        uint64_t charge, late, kept;
    } counted;
};

// Names a stream in a record of frees. It is filled in before the driver is asked to free, because
// another thread may end the context, and the stream with it, while the driver frees.
struct ga_memory_at {
    const struct ga_memory_driver *driver;
    void *stream;
    uint32_t thread;  // of a per-thread default stream, by its number
    void *handle;     // of the stream's context
    uint64_t context; // in which the stream is charged, by its serial number; 0: not known
    uint64_t epoch;   // of the interface's contexts, when this was filled in
};

// ga_memory_frees is the sum of what one stream has freed in one pool. Records stay on their list
// for ever, so that a walk over it need not hold the lock from one to the next; a record with
// nothing pending is used again. Guarded by ga_memory_pools.lock, except what a watch writes.
struct ga_memory_frees {
    struct ga_memory_frees *next;
    struct ga_memory_pool *pool;
    struct ga_memory_at at; // handle NULL: nothing may be asked of the stream
    uint64_t bytes;
    uint64_t turn;           // ga_memory_pools.frees when it last grew
    bool watched;            // the program has destroyed the stream, whose last work sets passed
    _Atomic uint32_t passed; // 1: that work was executed, so all frees were
};

// Begins a move of bytes (ga_move_begin) and locks the pools; unlocks them and ends the move.
struct ga_memory_pools *ga_memory_pools_begin(struct ga_root *root);
void ga_memory_pools_end(struct ga_memory_pools *p);
// Copies a record.
struct ga_memory_pool ga_memory_pool_copy(struct ga_root *root, const struct ga_memory_pool *pool);
// With the pools locked, before the sums are used: if a new session has begun, makes all bytes of
// the pool stale, because the daemon of the new session knows nothing of them.
void ga_memory_pool_refresh(struct ga_root *root, struct ga_memory_pool *pool);
// With the pools locked, after a change of a pool's sums: adds the change to the sums of its device
// in the root.
void ga_memory_pool_count(struct ga_root *root, struct ga_memory_pool *pool);

// With the pools locked: whether a record has something pending.
static inline bool ga_memory_frees_pending(const struct ga_memory_frees *f) {
    return f->bytes != 0;
}
// With the pools locked, or of a copy: whether a record is of a stream.
bool ga_memory_frees_at(const struct ga_memory_frees *f, const struct ga_memory_at *at);
// As ga_memory_pools_begin, and finds or makes the record of a stream's frees in a pool. *record is
// NULL if there is no memory for one; the pools are locked all the same.
struct ga_memory_pools *ga_memory_frees_begin(struct ga_root *root, struct ga_memory_pool *pool,
                                              const struct ga_memory_at *at,
                                              struct ga_memory_frees **record);
// With the pools locked: takes up to bytes from what a stream has freed in a pool, and returns how
// many.
uint64_t ga_memory_frees_take(struct ga_memory_pools *p, struct ga_memory_pool *pool,
                              const struct ga_memory_at *at, uint64_t bytes);
// With the pools locked: undoes ga_memory_frees_take, for as many bytes as it returned.
void ga_memory_frees_give(struct ga_memory_pools *p, struct ga_memory_pool *pool,
                          const struct ga_memory_at *at, uint64_t bytes);
// Counts bytes as executed, on any stream. The caller has locked the pools.
void ga_memory_frees_forget(struct ga_memory_pools *p, struct ga_memory_pool *pool, uint64_t bytes);

#endif
