// SPDX-License-Identifier: Apache-2.0
// The accounting of pools of stream-ordered memory, and of the pool that the driver keeps for the
// memory of graphs. Wrappers call async.h, graph.h and pending.h, which call these functions.
//
// A pool is charged with the bytes that it has reserved of its device. It has three sums, in bytes:
//   live    blocks that the program has;
//   freed   blocks whose free in stream order is not known to have executed, by stream (pending.h);
//   charge  what is taken from the budget for the pool: live + freed, or the reserved bytes less
//   one
//           granule (the driver's rounding), whichever is greater.
// An allocation raises charge to at least live + freed, its own bytes included, before the driver
// is asked for the block. The reserved bytes are read after each allocation, and when they may have
// become fewer. If the driver reserved more than the budget has room for, the library frees the
// block, and asks for an allocation of only new memory.
//
// The library does not know where in a pool the driver puts a block. A pool that keeps enough bytes
// may keep them in pieces that are each too small. So a block that is larger than any block freed
// before is admitted as new memory in full.
#ifndef GA_MEMORY_POOL_H
#define GA_MEMORY_POOL_H

#include "memory/sums.h"

// The functions that look up a pool by its handle, its device or a block return its record with a
// use: the caller must call ga_memory_pool_release when it no longer reads the record (sums.h).
//
// Returns the record of the pool that a device allocates from. NULL: no memory.
struct ga_memory_pool *ga_memory_pool_current(struct ga_root *root,
                                              const struct ga_memory_driver *driver,
                                              uint32_t device);
// Returns the record of a handle, and makes one if there is none; NULL: no memory. The driver is
// asked on which device a new record's pool is: ga_memory_driver.device_of_pool.
struct ga_memory_pool *ga_memory_pool_named(struct ga_root *root,
                                            const struct ga_memory_driver *driver, void *handle,
                                            int otherwise);
// Returns a number that changes when the pool that a device allocates from may have changed; 0: a
// call of the driver that may change it has not returned.
uint64_t ga_memory_pool_turn(struct ga_root *root);
// Asks the driver from which pool a block came, and returns its record. NULL: the driver does not
// say, the pool is not on device, or there is no memory.
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
// Returns the record of a device's pool of a kind without handles. Such pools never end: the caller
// gets no use, and must not release one. NULL: no memory.
struct ga_memory_pool *ga_memory_pool_of_kind(struct ga_root *root,
                                              const struct ga_memory_driver *driver,
                                              uint32_t device, enum ga_memory_pool_kind kind);

// Ends a use of a record. If it was the last use, and the pool is destroyed and has no live or
// freed bytes, gives the charge back. Returns how many bytes it gave back.
uint64_t ga_memory_pool_release(struct ga_root *root, struct ga_memory_pool *pool);

// Must be called before a question to the driver about a pool, and ga_memory_pool_answered after
// it: in between no thread has the driver destroy the pool. Returns a copy of the record, whose
// handle is the one to ask about.
struct ga_memory_pool ga_memory_pool_ask(struct ga_root *root, struct ga_memory_pool *pool);
void ga_memory_pool_answered(struct ga_root *root, struct ga_memory_pool *pool);

// An allocation from a pool. The caller keeps its use of the pool until it has called
// ga_memory_pool_undo or ga_memory_pool_commit.
struct ga_memory_acquisition {
    struct ga_root *root;
    struct ga_memory_pool *pool;
    struct ga_memory_at at;
    uint64_t bytes;
    uint64_t reused; // part of bytes that was subtracted from what the stream has freed
    uint32_t kind;   // GA_MEMORY_ASYNC or GA_MEMORY_GRAPH (core/wire.h)
    uint16_t tag;    // number of the session that the bytes are charged in
};
enum ga_memory_acquire_how {
    // Takes what the stream has freed and what the pool keeps, if the pool may keep a large enough
    // piece, and the rest from the credit word. Else as GA_MEMORY_ACQUIRE_NEW.
    GA_MEMORY_ACQUIRE,
    GA_MEMORY_ACQUIRE_REUSED, // as GA_MEMORY_ACQUIRE; the pool is known to keep a large enough
                              // piece
    GA_MEMORY_ACQUIRE_NEW,    // asks for all bytes as new memory, and may wait for them
    GA_MEMORY_ACQUIRE_NOW, // as GA_MEMORY_ACQUIRE_REUSED, but never waits: the driver has allocated
                           // it
};
// Takes t->bytes before the driver is asked for them. The caller has filled in root, pool, at,
// bytes and kind. False: refused, and nothing is taken. True: the bytes are live, and when the
// driver has answered, the caller calls ga_memory_pool_undo or ga_memory_pool_commit once.
bool ga_memory_pool_acquire(struct ga_memory_acquisition *t, enum ga_memory_acquire_how how);
// Gives back what was taken, because the driver refused or has the block back.
void ga_memory_pool_undo(struct ga_memory_acquisition *t);
// Reads the pool, because the driver has allocated. Returns false if the pool grew by more than
// there is room for. The bytes are live all the same, and the caller should have the driver free
// the block.
bool ga_memory_pool_commit(struct ga_memory_acquisition *t);

// Writes down a block of a pool under its address. It is in this table only, not in root.blocks.
// False: no memory.
bool ga_memory_pool_insert(const struct ga_memory_acquisition *t, uint64_t address, uint64_t bytes);
// Takes the entry of a block out of the table; its bytes stay live. False: there is no entry.
bool ga_memory_pool_remove(struct ga_root *root, uint64_t address, struct ga_entry *entry);
// Reports whether a block of a pool is at an address.
bool ga_memory_pool_has(struct ga_root *root, uint64_t address);
// Puts the entry of a withdrawn block into the table again, because the driver did not free it.
// Without memory for the entry the bytes stay live for good.
void ga_memory_pool_reinsert(struct ga_root *root, const struct ga_entry *entry);
// Subtracts a withdrawn block from the live bytes of its pool, because the driver has freed it at
// once, not in stream order. reads: whether to read the reserved bytes of the pool as well.
void ga_memory_pool_freed(struct ga_root *root, const struct ga_entry *entry, bool reads);

// Reads the reserved bytes of a pool, and sets its charge by them: gives back what is too much, and
// takes what is missing if the credit word has it. The caller has a use of the pool. Returns how
// many bytes it gave back.
uint64_t ga_memory_pool_update(struct ga_root *root, struct ga_memory_pool *pool);
// Trims a pool down to its charge, and reads it. The caller has a use of the pool.
void ga_memory_pool_trim_to_charge(struct ga_root *root, struct ga_memory_pool *pool);
// Reads the pools of a device (−1: of all) that keep bytes beyond live + freed, and trims them
// until wanted bytes were given back. The caller has locked ga_memory_of(root)->asking, or has
// waited for it in vain. Returns how many bytes were given back.
uint64_t ga_memory_pool_reap(struct ga_root *root, int device, uint64_t wanted);

// Must be called before and after a call of the driver that may change which pool a device
// allocates from. root NULL: both do nothing. changing: the result of the first.
struct ga_memory_pools *ga_memory_pool_change_begin(struct ga_root *root);
void ga_memory_pool_change_end(struct ga_memory_pools *changing);

// Must be called before and after the driver is asked to destroy a pool. The first sets the handle
// of the pool's record to NULL, because the driver may give the handle to a new pool at once, and
// waits up to five seconds for threads that ask the driver about the pool. It returns the record,
// or NULL if there is none. The second puts the handle back if the driver refused (ended false).
// Blocks outlive their pool: the charge ends with the last of them.
struct ga_memory_pool *ga_memory_pool_destroy_begin(struct ga_root *root,
                                                    const struct ga_memory_driver *driver,
                                                    void *handle);
void ga_memory_pool_destroy_end(struct ga_root *root, struct ga_memory_pool *pool, void *handle,
                                bool ended);
// Reads the reserved bytes of a pool, because the program has had the driver trim it.
void ga_memory_pool_trimmed(struct ga_root *root, const struct ga_memory_driver *driver,
                            void *handle);

#endif
