// SPDX-License-Identifier: Apache-2.0
// The accounting of pools of stream-ordered memory, and of the pool that the driver keeps for the
// memory of graphs. Wrappers call async.h, graph.h and pending.h, which call these functions.
//
// A pool is charged with the bytes that it has reserved of its device. It has three sums, in bytes:
//   live    blocks that the program has;
//   freed   blocks whose stream-ordered free is not known to have executed, by stream (pending.h);
//   charge  bytes acquired from the budget for the pool.
// The charge is live + freed, or the reserved bytes less one granule (the driver's rounding),
// whichever is greater. An allocation raises charge to at least live + freed, its own bytes
// included, before the driver is asked for the block. The reserved bytes are read after each
// allocation, and when they may have become fewer. If the driver has reserved more than the budget
// allows, the library frees the block, and tries once more with new memory only.
//
// The library does not know where in a pool the driver puts a block. The unused bytes of a pool may
// lie in pieces that are all too small. So a block that is larger than any block freed before is
// admitted as new memory in full. One spin lock, ga_memory_pools.lock, guards all pools.
#ifndef GA_MEMORY_POOL_H
#define GA_MEMORY_POOL_H

#include "memory/sums.h"

// Functions that look up a pool by its handle, its device or a block return its record with a use.
// The caller must call ga_memory_pool_release when it no longer reads the record (sums.h).
//
// Returns the record of the pool that a device allocates from. NULL: no memory.
struct ga_memory_pool *ga_memory_pool_current(struct ga_root *root,
                                              const struct ga_memory_driver *driver,
                                              uint32_t device);
// Returns the record of a handle, and makes one if there is none. NULL: no memory. For a new record
// asks the driver for the pool's device: ga_memory_driver.device_of_pool.
struct ga_memory_pool *ga_memory_pool_named(struct ga_root *root,
                                            const struct ga_memory_driver *driver, void *handle,
                                            int otherwise);
// Returns a number that changes when the pool that a device allocates from may have changed. 0: a
// driver's call that may change it is under way.
uint64_t ga_memory_pool_turn(struct ga_root *root);
// Asks the driver from which pool a block came, and returns its record. NULL: the driver does not
// say, the pool is on another device, or memory is short.
struct ga_memory_pool *ga_memory_pool_asked(struct ga_root *root,
                                            const struct ga_memory_driver *driver, uint64_t address,
                                            int device);
// Returns the record of a handle. NULL: there is none.
struct ga_memory_pool *ga_memory_pool_find(struct ga_root *root,
                                           const struct ga_memory_driver *driver, void *handle);
// Returns the record of a handle, and makes one if there is none, for a pool on device
// (ga_memory_pool.device). NULL: no memory.
struct ga_memory_pool *ga_memory_pool_make(struct ga_root *root,
                                           const struct ga_memory_driver *driver, void *handle,
                                           int device);
// Returns the record of a device's pool of a kind without handles. Such pools always exist, so the
// caller gets no use, and must not release one. NULL: no memory.
struct ga_memory_pool *ga_memory_pool_of_kind(struct ga_root *root,
                                              const struct ga_memory_driver *driver,
                                              uint32_t device, enum ga_memory_pool_kind kind);

// Ends a use of a record. If it was the last use, and the pool is destroyed and has no live or
// freed bytes, gives the charge back. Returns how many bytes it gave back.
uint64_t ga_memory_pool_release(struct ga_root *root, struct ga_memory_pool *pool);

// Must be called before a call of the driver about a pool, and ga_memory_pool_answered after it. No
// thread destroys the pool in between. Returns a copy of the record; the call must use the handle
// of the copy.
struct ga_memory_pool ga_memory_pool_ask(struct ga_root *root, struct ga_memory_pool *pool);
void ga_memory_pool_answered(struct ga_root *root, struct ga_memory_pool *pool);

// Acquisition of bytes for an allocation from a pool. The caller keeps its use of the pool until
// ga_memory_pool_undo or ga_memory_pool_commit.
struct ga_memory_acquisition {
    struct ga_root *root;
    struct ga_memory_pool *pool;
    struct ga_memory_at at;
    uint64_t bytes;
    uint64_t reused; // part of bytes that was subtracted from the stream's frees
    uint32_t kind;   // GA_MEMORY_ASYNC or GA_MEMORY_GRAPH (core/wire.h)
    uint32_t full;   // ga_admit_again; 0: the driver has not been called
    uint16_t tag;    // number of the session that the bytes are charged in
};
enum ga_memory_acquire_how {
    // Uses the stream's frees and the pool's unused memory, if that may contain a large enough
    // piece, and the credit word for the missing bytes. Otherwise does what GA_MEMORY_ACQUIRE_NEW
    // does.
    GA_MEMORY_ACQUIRE,
    GA_MEMORY_ACQUIRE_REUSED, // like GA_MEMORY_ACQUIRE; the pool certainly has a large enough piece
    GA_MEMORY_ACQUIRE_NEW,    // requests all bytes as new memory, and may wait for them
    GA_MEMORY_ACQUIRE_NOW,    // like GA_MEMORY_ACQUIRE_REUSED, without waiting: the driver has
                              // allocated the block
};
// Acquires t->bytes before the driver's call. The caller has filled in root, pool, at, bytes and
// kind. False: refused; nothing is acquired. True: the bytes are live, and after the driver's
// answer the caller must call ga_memory_pool_undo or ga_memory_pool_commit once.
bool ga_memory_pool_acquire(struct ga_memory_acquisition *t, enum ga_memory_acquire_how how);
// Releases the acquired bytes, because the driver refused, or has freed the block.
void ga_memory_pool_undo(struct ga_memory_acquisition *t);
// Reads the pool, because the driver has allocated. Returns false if the pool grew by more than
// could be acquired. The bytes are live all the same, and the caller should make the driver free
// the block.
bool ga_memory_pool_commit(struct ga_memory_acquisition *t);

// Inserts the entry of a pool's block. The entry is in this table only, not in root.blocks. False:
// no memory.
bool ga_memory_pool_insert(const struct ga_memory_acquisition *t, uint64_t address, uint64_t bytes);
// Removes the entry of a block; its bytes stay live. False: there is no entry.
bool ga_memory_pool_remove(struct ga_root *root, uint64_t address, struct ga_entry *entry);
// Reports whether a block of a pool is at an address.
bool ga_memory_pool_has(struct ga_root *root, uint64_t address);
// Inserts the entry of a removed block again, because the driver did not free the block. Without
// memory for the entry the bytes stay live until the process ends.
void ga_memory_pool_reinsert(struct ga_root *root, const struct ga_entry *entry);
// Subtracts a removed block from the live bytes of its pool, because the driver has freed it at
// once, not in stream order. reads: whether to read the pool's reserved bytes as well.
void ga_memory_pool_freed(struct ga_root *root, const struct ga_entry *entry, bool reads);

// Reads the reserved bytes of a pool, and sets its charge by them. Releases bytes that are too
// many, and acquires missing bytes if the credit word has them. The caller has a use of the pool.
// Returns the number of released bytes.
uint64_t ga_memory_pool_update(struct ga_root *root, struct ga_memory_pool *pool);
// Trims a pool down to its charge, and reads it. The caller has a use of the pool.
void ga_memory_pool_trim_to_charge(struct ga_root *root, struct ga_memory_pool *pool);
// Reads the pools of a device (−1: of all) that have unused bytes, and trims them until wanted
// bytes have come back. The caller holds ga_memory_of(root)->asking, or its wait for that has timed
// out. Returns how many bytes came back.
uint64_t ga_memory_pool_reap(struct ga_root *root, int device, uint64_t wanted);

// Must be called before and after a driver's call that may change which pool a device allocates
// from. root NULL: both do nothing. changing: result of the first.
struct ga_memory_pools *ga_memory_pool_change_begin(struct ga_root *root);
void ga_memory_pool_change_end(struct ga_memory_pools *changing);

// Must be called before and after the driver destroys a pool. The first sets the handle in the
// pool's record to NULL, because the driver may reuse the handle at once. It waits up to five
// seconds for other threads' calls about the pool. It returns the record; NULL: none. The second
// restores the handle if the driver refused (ended false). Blocks outlive their pool: the charge
// ends with the last block.
struct ga_memory_pool *ga_memory_pool_destroy_begin(struct ga_root *root,
                                                    const struct ga_memory_driver *driver,
                                                    void *handle);
void ga_memory_pool_destroy_end(struct ga_root *root, struct ga_memory_pool *pool, void *handle,
                                bool ended);
// Reads the reserved bytes of a pool, because the program has trimmed it.
void ga_memory_pool_trimmed(struct ga_root *root, const struct ga_memory_driver *driver,
                            void *handle);

#endif
