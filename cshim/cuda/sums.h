// SPDX-License-Identifier: Apache-2.0
// The sums of pools: what is live, what is freed, by stream, and what is charged. pool.h says what
// they mean, and sets the charge; pending.h says when a free counts as executed.
#ifndef GA_CUDA_SUMS_H
#define GA_CUDA_SUMS_H

#include "core/root.h"
#include "cuda/driver.h"
#include "cuda/state.h"

enum ga_cuda_pool_kind {
    GA_CUDA_POOL_ORDINARY,
    GA_CUDA_POOL_OF_GRAPHS, // of a device: it has no handle
    GA_CUDA_POOL_NONE,      // of a device: blocks of no pool that were freed in stream order, and
                            // blocks of a pool that the driver does not name
    GA_CUDA_POOL_UNUSED,    // stands for no pool
};

// Guarded by ga_cuda_pools.lock, except next, which never changes, and the device and kind of a
// pool that the program uses. Never freed: a record that is unused is used for another pool.
struct ga_cuda_pool {
    struct ga_cuda_pool *next;
    ga_pool handle; // NULL from its end on: the driver may be asked nothing about it
    int device;     // number; −1: its memory is not on an arbitrated device; or the next
#define GA_CUDA_POOL_IN_HOST (-2)
    enum ga_cuda_pool_kind kind;
    bool ending;  // the driver is being asked to end it
    uint16_t tag; // the session that the sums belong to
    uint64_t live, freed, charge;
    uint64_t asked;   // part of live: the driver is being asked for these blocks
    uint64_t largest; // the largest block that was freed, as far as the pool still has bytes for it
    uint64_t stale;   // bytes that were charged in an earlier session, or taken out of our sight
    uint64_t turn;    // counts blocks taken, and what was given back
    uint64_t untrimmed; // turn at which trimming did not help
    uint64_t readings;  // of what it has reserved, begun so far
    uint64_t applied;   // number of the reading that the charge is from
    uint64_t reserved;  // that reading; and turn, if no block was being asked for then
    uint64_t reserved_at;
    struct { // what root counts of the sums
        uint64_t charge, late, kept;
    } counted;
};

// A stream, as far as frees go, from before the driver is asked: afterwards it may have ended with
// its context.
struct ga_cuda_at {
    ga_stream stream;
    uint32_t thread;   // of a per-thread default stream, by its number
    ga_context handle; // of the stream's context
    uint64_t context;  // in which the stream is charged, by its serial number; 0: not known
    uint64_t epoch;    // ga_cuda_context_epoch
};

// ga_cuda_frees is the sum of what one stream has freed in one pool. Records stay on their list for
// ever, so that a walk over it need not hold the lock from one to the next; a record with nothing
// pending is used again. Guarded by ga_cuda_pools.lock, except what a watch writes.
struct ga_cuda_frees {
    struct ga_cuda_frees *next;
    struct ga_cuda_pool *pool;
    struct ga_cuda_at at; // handle NULL: nothing may be asked of the stream
    uint64_t bytes;
    uint64_t turn;           // ga_cuda_pools.frees when it last grew
    bool watched;            // the stream has ended, and calls passed when it has executed all
    _Atomic uint32_t passed; // it has
};

// Locks the pools, in a move of bytes; and the reverse.
struct ga_cuda_pools *ga_cuda_pools_begin(struct ga_root *root);
void ga_cuda_pools_end(struct ga_cuda_pools *p);
// Copies a record.
struct ga_cuda_pool ga_cuda_pool_copy(struct ga_root *root, const struct ga_cuda_pool *pool);
// With the pools locked: drops what belongs to a session that is over.
void ga_cuda_pool_refresh(struct ga_root *root, struct ga_cuda_pool *pool);
// With the pools locked, after a change of a pool's sums: makes root count them.
void ga_cuda_pool_count(struct ga_root *root, struct ga_cuda_pool *pool);

// With the pools locked: whether a record has something pending.
static inline bool ga_cuda_frees_pending(const struct ga_cuda_frees *f) {
    return f->bytes != 0;
}
// With the pools locked, or of a copy: whether a record is of a stream.
bool ga_cuda_frees_at(const struct ga_cuda_frees *f, const struct ga_cuda_at *at);
// Locks the pools, in a move of bytes, and finds or makes the record of a stream in a pool, or
// (pool NULL) one for a call. *record NULL: no memory.
struct ga_cuda_pools *ga_cuda_frees_begin(struct ga_root *root, struct ga_cuda_pool *pool,
                                          const struct ga_cuda_at *at,
                                          struct ga_cuda_frees **record);
// With the pools locked: takes up to bytes from what a stream has freed in a pool, and returns how
// many.
uint64_t ga_cuda_frees_take(struct ga_cuda_pools *p, struct ga_cuda_pool *pool,
                            const struct ga_cuda_at *at, uint64_t bytes);
// With the pools locked: puts them back.
void ga_cuda_frees_give(struct ga_cuda_pools *p, struct ga_cuda_pool *pool,
                        const struct ga_cuda_at *at, uint64_t bytes);
// With the pools locked: counts so many bytes as executed, whatever stream freed them.
void ga_cuda_frees_forget(struct ga_cuda_pools *p, struct ga_cuda_pool *pool, uint64_t bytes);

#endif
