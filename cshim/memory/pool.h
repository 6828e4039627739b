// SPDX-License-Identifier: Apache-2.0
// Pools of stream-ordered memory, and the driver's own pool for the memory of graphs.
//
// A pool is charged with what the driver says that it holds. It has three sums, in bytes:
//   live    blocks that the program has;
//   freed   blocks whose free in stream order is not known to have executed, by stream (pending.h);
//   charge  what is taken from the budget for it: the greater of live + freed, and of what the pool
//           has reserved of its device less one granule of rounding.
// The charge covers live + freed before the driver is asked for a block. The reserved bytes are
// read after each allocation, and whenever they may have become fewer. If the driver took more than
// the budget has room for, the block is freed again, and its bytes are asked for as new ones.
//
// Where the driver puts a block is not modelled. A pool may take new memory though it keeps enough
// in pieces, so that a block larger than any that was freed is admitted as new memory in full.
#ifndef GA_MEMORY_POOL_H
#define GA_MEMORY_POOL_H

#include "memory/sums.h"

// A function that looks up a pool by its handle, or by its device or a block, returns the record
// with a use of it, which the caller releases when it has done with the record (sums.h).
//
// Returns the record of the pool that a device takes from. NULL: no memory.
struct ga_memory_pool *ga_memory_pool_current(struct ga_root *root,
                                              const struct ga_memory_driver *driver,
                                              uint32_t device);
// Returns the record of a handle, made if there is none; NULL: no memory. A new record is of the
// device whose default or current pool the handle is, as the driver says, else of device otherwise.
struct ga_memory_pool *ga_memory_pool_named(struct ga_root *root,
                                            const struct ga_memory_driver *driver, void *handle,
                                            int otherwise);
// Returns a number that changes when the pool that a device takes from may have changed; 0 while a
// change is under way.
uint64_t ga_memory_pool_turn(struct ga_root *root);
// Asks the driver from which pool a block came. NULL: it does not say, or the pool is not on
// device.
struct ga_memory_pool *ga_memory_pool_asked(struct ga_root *root,
                                            const struct ga_memory_driver *driver, uint64_t address,
                                            int device);
// Returns the record of a handle, or NULL; and the record, made if there is none (NULL: no memory).
// The device is a number, or as in ga_memory_pool.
struct ga_memory_pool *ga_memory_pool_find(struct ga_root *root,
                                           const struct ga_memory_driver *driver, void *handle);
struct ga_memory_pool *ga_memory_pool_make(struct ga_root *root,
                                           const struct ga_memory_driver *driver, void *handle,
                                           int device);
// Returns a device's pool of a kind without a handle, which never ends, so that the caller gets no
// use of it. NULL: no memory.
struct ga_memory_pool *ga_memory_pool_of_kind(struct ga_root *root,
                                              const struct ga_memory_driver *driver,
                                              uint32_t device, enum ga_memory_pool_kind kind);

// Ends a use of a record. If it was the last of a destroyed pool without blocks and pending frees,
// gives the charge back. Returns the bytes that went back.
uint64_t ga_memory_pool_release(struct ga_root *root, struct ga_memory_pool *pool);

// Counts a question to the driver about a pool, which is not destroyed until
// ga_memory_pool_answered, and returns a copy of the record as of now.
struct ga_memory_pool ga_memory_pool_ask(struct ga_root *root, struct ga_memory_pool *pool);
void ga_memory_pool_answered(struct ga_root *root, struct ga_memory_pool *pool);

// Memory of a pool that the driver is being asked for. The caller has a use of the pool until the
// driver has answered and the bytes are settled.
struct ga_memory_take {
    struct ga_root *root;
    struct ga_memory_pool *pool;
    struct ga_memory_at at;
    uint64_t bytes;
    uint64_t again; // of these, bytes that the stream had freed
    uint32_t kind;  // GA_MEMORY_…
    uint16_t tag;   // the session that it is charged in
};
enum ga_memory_take_how {
    GA_MEMORY_TAKE,       // from what the stream freed and the pool keeps, else as new memory
    GA_MEMORY_TAKE_AGAIN, // the same, and the pool has a piece for it
    GA_MEMORY_TAKE_NEW,   // as new memory, in full
    GA_MEMORY_TAKE_NOW,   // the driver has given it already: never waits
};
// Takes t->bytes before the driver is asked for them. The caller has filled in root, pool, at,
// bytes and kind. False: refused, and nothing is taken. True: the bytes are live, and when the
// driver has answered, the caller calls ga_memory_pool_untake or ga_memory_pool_taken once.
bool ga_memory_pool_take(struct ga_memory_take *t, enum ga_memory_take_how how);
// The driver has refused: gives back what was taken. The driver has allocated: reads the pool.
// Returns false if the pool grew by more than there is room for; the bytes stay live then, and the
// caller should have the driver free the block.
void ga_memory_pool_untake(struct ga_memory_take *t);
bool ga_memory_pool_taken(struct ga_memory_take *t);

// Blocks of pools, by address: they are counted by their pool, in no other table. False: no memory.
bool ga_memory_pool_hold(const struct ga_memory_take *t, uint64_t address, uint64_t bytes);
// Takes a block out, and copies it. False: no pool has a block at the address.
bool ga_memory_pool_withdraw(struct ga_root *root, uint64_t address, struct ga_entry *entry);
bool ga_memory_pool_holds(struct ga_root *root, uint64_t address);
// Puts a block that was withdrawn into the table again, because the driver did not free it.
void ga_memory_pool_put_back(struct ga_root *root, const struct ga_entry *entry);
// Takes a block that was withdrawn out of its pool's live bytes: the driver has freed it at once,
// not in stream order. reads: whether to read what the pool holds now.
void ga_memory_pool_freed(struct ga_root *root, const struct ga_entry *entry, bool reads);

// Reads what a pool holds, and sets its charge: what is too much goes back, and what it lacks is
// taken if there is credit. The caller has a use of the pool. Returns the bytes that went back.
uint64_t ga_memory_pool_update(struct ga_root *root, struct ga_memory_pool *pool);
// Has a pool give up what it holds beyond its charge.
void ga_memory_pool_shed(struct ga_root *root, struct ga_memory_pool *pool);
// Reads what pools hold of a device (−1: of each) if they are charged with more than blocks, and
// has them give up more until wanted bytes came back. The caller holds ga_memory_of(root)->asking.
// Returns how many bytes came back.
uint64_t ga_memory_pool_reap(struct ga_root *root, int device, uint64_t wanted);

// Are called before and after a call of the driver that may change which pool a device takes from.
// root NULL: changing is NULL, and nothing is done.
struct ga_memory_pools *ga_memory_pool_change_begin(struct ga_root *root);
void ga_memory_pool_change_end(struct ga_memory_pools *changing);

// Are called before and after the driver is asked to destroy a pool. The first takes the handle out
// of the pool's record, because the driver may give it out again at once, and waits for the threads
// that ask the driver about it. Returns the record, or NULL if there is none. The pool's blocks
// live on, and its charge ends with the last of them.
struct ga_memory_pool *ga_memory_pool_ends(struct ga_root *root,
                                           const struct ga_memory_driver *driver, void *handle);
void ga_memory_pool_ended(struct ga_root *root, struct ga_memory_pool *pool, void *handle,
                          bool ended);
// The program has had the driver trim a pool: reads what it holds.
void ga_memory_pool_trimmed(struct ga_root *root, const struct ga_memory_driver *driver,
                            void *handle);

#endif
