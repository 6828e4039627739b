// SPDX-License-Identifier: Apache-2.0
// Records of pools and of stream-ordered frees, with their sums in bytes: live, freed and charge.
// These functions lock the records and change sums, without calls of the driver. pool.h explains
// the sums, and sets the charge. pending.h says when a free counts as executed.
#ifndef GA_MEMORY_SUMS_H
#define GA_MEMORY_SUMS_H

#include "core/root.h"
#include "memory/state.h"

enum ga_memory_pool_kind {
    GA_MEMORY_POOL_ORDINARY,  // a pool that the driver has a handle for
    GA_MEMORY_POOL_OF_GRAPHS, // graph memory of a device: the driver has no handle for it
    GA_MEMORY_POOL_NONE,      // for each device: blocks without a pool, freed in stream order, and
                              // blocks whose pool the driver does not report
    GA_MEMORY_POOL_UNUSED,    // the record may be used for another pool
};

// Record of a pool of the driver. ga_memory_pools.lock guards all fields. Exceptions: next never
// changes; device and kind do not change while a thread has a use of the record.
//
// Records are never freed. A thread that looks up a pool gets a use of its record, and releases the
// use (ga_memory_pool_release) when it no longer reads the record. A record belongs to its pool
// while the pool has a handle, live or freed bytes, or a use. Then its kind becomes
// GA_MEMORY_POOL_UNUSED, and another pool may use it. Blocks of an earlier session may still point
// to it. Their tag differs, so their frees change no sum.
//
// A thread adds 1 to asking, reads the handle, calls the driver about the pool, and subtracts 1. A
// thread that destroys the pool first sets the handle to NULL, then waits until asking is 0, then
// calls the driver. So the driver is never called about a pool that it has destroyed.
struct ga_memory_pool {
    struct ga_memory_pool *next;
    const struct ga_memory_driver *driver;
    void *handle; // NULL: the kind has none, or the program destroys the pool
    uint32_t uses;
    uint32_t asking; // number of calls of the driver about the pool that are under way
    int device;      // number of the device; −1: not arbitrated; or GA_MEMORY_POOL_IN_HOST
#define GA_MEMORY_POOL_IN_HOST (-2)
    enum ga_memory_pool_kind kind;
    uint16_t tag; // number of the session to which the sums belong
    uint64_t live, freed, charge;
    uint64_t asked;   // bytes of live whose allocation is under way
    uint64_t blocks;  // number of allocations that are under way
    uint64_t largest; // a block that is not larger may fit into memory that the pool keeps:
                      // largest freed block, or charge - live at the last reading if that is less
    // Reserved bytes that are not in charge: the library did not see their allocation, or they were
    // charged in an earlier session.
    uint64_t stale;
    uint64_t turn;        // number of times that a block was acquired, or charge fell
    uint64_t untrimmed;   // turn at which trimming gave fewer bytes than wanted; 0: never
    uint64_t readings;    // number of questions to the driver that have begun
    uint64_t applied;     // number of the reading that charge was last set by
    uint64_t reserved;    // bytes of that reading
    uint64_t reserved_at; // turn of that reading; UINT64_MAX: a block was acquired meanwhile
    struct { // part of ga_root.pooled, ga_device.unexecuted and .pool_unused that is this pool's
        uint64_t charge, unexecuted, pool_unused;
    } counted;
};

// Stream and its context. A wrapper fills this in before it calls the driver, because another
// thread may end the context, and so the stream, during the call.
struct ga_memory_at {
    const struct ga_memory_driver *driver;
    void *stream;     // handle of the stream
    uint32_t thread;  // number of the thread whose default stream it is; 0: any other stream
    void *handle;     // handle of the stream's context
    uint64_t context; // serial number of the context that the stream is charged in; 0: not known
    uint64_t epoch;   // number of contexts that had ended when this was filled in
};

// Sum of the bytes that one stream has freed in one pool and that are not known to have executed.
// Records are never freed, so that a walk over the list may unlock between two records. Another
// stream may use a record with 0 bytes. Guarded by ga_memory_pools.lock; passed is atomic, because
// the driver's host function writes it (pending.c).
struct ga_memory_frees {
    struct ga_memory_frees *next;
    struct ga_memory_pool *pool;
    struct ga_memory_at at; // its handle NULL: the driver must not be asked about the stream
    uint64_t bytes;
    uint64_t turn; // value of ga_memory_pools.frees when bytes were last added
    bool watched; // true: the stream was destroyed, and the last function that it calls sets passed
    _Atomic uint32_t passed; // 1: that function was called, so that all frees have executed
};

// Begins a move of bytes (ga_move_begin), then locks the pools.
struct ga_memory_pools *ga_memory_pools_begin(struct ga_root *root);
// Unlocks the pools, then ends the move.
void ga_memory_pools_end(struct ga_memory_pools *p);
// Returns a copy of a record, made with the pools locked.
struct ga_memory_pool ga_memory_pool_copy(struct ga_root *root, const struct ga_memory_pool *pool);
// Moves all bytes of the pool to stale if a new session has begun since its sums last changed,
// because the new session does not charge them. The caller has locked the pools, and must call this
// before it changes a sum.
void ga_memory_pool_refresh(struct ga_root *root, struct ga_memory_pool *pool);
// Adds the changes of a pool's sums to the sums of its device in the root. The caller has locked
// the pools. The pool is on an arbitrated device.
void ga_memory_pool_count(struct ga_root *root, struct ga_memory_pool *pool);

// Reports whether a record has pending frees. The caller has locked the pools.
static inline bool ga_memory_frees_pending(const struct ga_memory_frees *f) {
    return f->bytes != 0;
}
// Reports whether a record is that of a stream. The caller has locked the pools, or f is a copy.
bool ga_memory_frees_at(const struct ga_memory_frees *f, const struct ga_memory_at *at);
// Does what ga_memory_pools_begin does, and finds or makes the record of a stream's frees in a
// pool. If there is no memory for one, *record is NULL, and the pools are locked all the same.
struct ga_memory_pools *ga_memory_frees_begin(struct ga_root *root, struct ga_memory_pool *pool,
                                              const struct ga_memory_at *at,
                                              struct ga_memory_frees **record);
// Subtracts up to bytes from what a stream has freed in a pool, because an allocation on this
// stream may reuse that memory. Returns the number of subtracted bytes. The caller has locked the
// pools.
uint64_t ga_memory_frees_subtract(struct ga_memory_pools *p, struct ga_memory_pool *pool,
                                  const struct ga_memory_at *at, uint64_t bytes);
// Adds bytes that ga_memory_frees_subtract has subtracted to the stream's frees again, because the
// allocation was refused. The caller has locked the pools.
void ga_memory_frees_restore(struct ga_memory_pools *p, struct ga_memory_pool *pool,
                             const struct ga_memory_at *at, uint64_t bytes);
// Subtracts bytes from the frees of any streams in a pool, because the pool's reserved bytes show
// that these frees have executed. The caller has locked the pools.
void ga_memory_frees_forget(struct ga_memory_pools *p, struct ga_memory_pool *pool, uint64_t bytes);

#endif
