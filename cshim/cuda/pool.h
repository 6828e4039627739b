// SPDX-License-Identifier: Apache-2.0
// Pools of stream-ordered memory, and the driver's own pool for the memory of graphs.
//
// What is freed in stream order stays with its pool after it has executed, until the pool gives it
// up: at a synchronisation, as its release threshold says, when it is trimmed, or with its end.
// Until then it is gone from the device, so that it stays charged. What a pool holds the driver
// says (RESERVED_MEM_CURRENT). A pool is charged with its blocks, or with what it holds less one
// granule of rounding where that is more.
//
// A pool may take new memory though it keeps enough in pieces: so an allocation is admitted as new
// as a whole, and what the pool did not grow by goes back afterwards. NVIDIA's programming guide
// says that a driver may remap such pieces, reports say that pools grow (rmm#1245, pytorch#110194):
// which it is is a belief, and nothing here depends on it. Only a block that the same stream
// freed, and that nothing can have used since, is counted on beforehand.
#ifndef GA_CUDA_POOL_H
#define GA_CUDA_POOL_H

#include "core/root.h"
#include "cuda/driver.h"
#include "cuda/state.h"

// Never freed, but used again for another pool when the one it stands for is gone.
struct ga_cuda_pool;

// What cuMemAllocAsync takes from on a device. NULL: no memory for the record.
struct ga_cuda_pool *ga_cuda_pool_current(struct ga_root *root, uint32_t device);
// The pool of a handle. One that was never seen before is taken to be on the device that
// otherwise says, unless it is another device's own.
struct ga_cuda_pool *ga_cuda_pool_named(struct ga_root *root, ga_pool handle, int otherwise);
// Which pool devices take from: a number that is another one when that may have changed since; 0
// while it changes.
uint64_t ga_cuda_pool_turn(struct ga_root *root);
// The pool that the driver took a block from, or NULL where it does not say.
struct ga_cuda_pool *ga_cuda_pool_asked(struct ga_root *root, ga_address address, int device);
// Has a pool give up what it holds and is not charged with.
void ga_cuda_pool_shed(struct ga_root *root, struct ga_cuda_pool *pool);
struct ga_cuda_pool *ga_cuda_pool_of_graphs(struct ga_root *root, uint32_t device);
// Its device; or −1: what it holds is not on one that is arbitrated; or
// GA_CUDA_POOL_IN_HOST.
int ga_cuda_pool_device(const struct ga_cuda_pool *pool);
#define GA_CUDA_POOL_IN_HOST (-2)
// The pool that a block came from, or NULL.
struct ga_cuda_pool *ga_cuda_pool_of(const struct ga_entry *entry);

// Who freed a block, and surely has it again when it asks for as many bytes: a stream in its
// context, or a graph.
struct ga_cuda_pool_user {
    uint64_t id, context;
};
// Takes such a block of what the pool keeps: its bytes are on their way. False: there is none.
// *tag: the session that they, and all that the pool is charged with, belong to.
bool ga_cuda_pool_ready(struct ga_root *root, struct ga_cuda_pool *pool,
                        const struct ga_cuda_pool_user *user, uint64_t bytes, uint16_t *tag);
// The reverse: the driver did not use it.
void ga_cuda_pool_keep(struct ga_root *root, struct ga_cuda_pool *pool, uint64_t bytes,
                       uint16_t tag);
// A stream has ended, or where context is not 0, a context: what either freed is nobody's to have
// again.
void ga_cuda_pool_forget_users(struct ga_root *root, uint64_t id, uint64_t context);
// The driver is about to be asked for a block, for which so many bytes were admitted: the pool may
// grow by them. And the reverse, where no block came of that.
void ga_cuda_pool_enter(struct ga_root *root, struct ga_cuda_pool *pool, uint64_t bytes);
void ga_cuda_pool_leave(struct ga_root *root, struct ga_cuda_pool *pool, uint64_t bytes);
// A block of the pool is held, for which so many bytes were admitted and entered (0: it had been
// the pool's before).
void ga_cuda_pool_grew(struct ga_root *root, struct ga_cuda_pool *pool, uint64_t bytes,
                       uint16_t tag);
// After a block has come, for which so many bytes were admitted: gives back what the pool did not
// grow by, or has what it grew by beyond that admitted too. False: that was refused.
bool ga_cuda_pool_balance(struct ga_root *root, struct ga_cuda_pool *pool, uint64_t admitted,
                          const struct ga_cuda_pool_user *user);
// Whether bytes of a device came of pools often enough in a row for these to be asked before the
// daemon is; and that the daemon was asked, and whether the bytes came of pools.
bool ga_cuda_pool_is_strait(struct ga_root *root, uint32_t device);
void ga_cuda_pool_asked_for(struct ga_root *root, uint32_t device, bool of_pools);
// A block of the pool has come, and is pending already: its bytes were on their way.
void ga_cuda_pool_pends(struct ga_root *root, struct ga_cuda_pool *pool, uint64_t bytes,
                        uint64_t grew, uint16_t tag);
// A block of the pool is no more, and was late until now: its bytes are kept. Inside a move, and
// with the list of pending frees locked or not; returns slot + 1 when the daemon is to be told.
uint32_t ga_cuda_pool_execute(struct ga_root *root, struct ga_cuda_pool *pool, uint64_t bytes,
                              uint16_t tag, const struct ga_cuda_pool_user *user);
// The same, in a move of its own.
void ga_cuda_pool_executed(struct ga_root *root, struct ga_cuda_pool *pool, uint64_t bytes,
                           uint16_t tag, const struct ga_cuda_pool_user *user);
// The same for one that was freed at once, whose bytes are on their way.
void ga_cuda_pool_freed(struct ga_root *root, struct ga_cuda_pool *pool, uint64_t bytes,
                        uint16_t tag);
// The same for one whose address another block has: it was freed out of our sight.
void ga_cuda_pool_lost(struct ga_root *root, struct ga_cuda_pool *pool, uint64_t bytes,
                       uint16_t tag);
// ga_interface.lose.
bool ga_cuda_pool_lose(struct ga_root *root, const struct ga_entry *entry);

// Gives back what the pools of a device have given up, and makes them give up more until wanted
// bytes came back. The caller holds ga_cuda(root)->asking. Returns how many bytes that was.
uint64_t ga_cuda_pool_reap(struct ga_root *root, uint32_t device, uint64_t wanted);

// Adds to what is late on a device, or takes from that; inside a move. tag: the session that it is
// charged in.
void ga_cuda_pool_late(struct ga_root *root, uint32_t device, uint64_t bytes, uint16_t tag);
void ga_cuda_pool_not_late(struct ga_root *root, uint32_t device, uint64_t bytes, uint16_t tag);

// The driver has made a pool, or shown the one of a place, which may be host memory.
ga_result ga_cuda_pool_met(ga_result result, const ga_pool *pool, const struct ga_cu_location *at,
                           int type);
// Around a call that changes which pool a device takes from.
struct ga_cuda_pools *ga_cuda_pool_change_begin(struct ga_root *root);
void ga_cuda_pool_change_end(struct ga_cuda_pools *changing);
ga_result ga_cuda_pool_destroy(GA_FN_cuMemPoolDestroy *real, ga_pool pool);
ga_result ga_cuda_pool_trim(GA_FN_cuMemPoolTrimTo *real, ga_pool pool, size_t keep);
ga_result ga_cuda_pool_trim_graphs(GA_FN_cuDeviceGraphMemTrim *real, ga_cu_device device);

#endif
