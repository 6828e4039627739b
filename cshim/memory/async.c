// SPDX-License-Identifier: Apache-2.0
// The steps of an allocation before and after the driver's call. pool.c acquires the bytes.
#include "memory/async.h"

enum ga_memory_opened ga_memory_async_open(struct ga_memory_async *a, struct ga_root *root,
                                           const struct ga_memory_at *at, int device, void *handle,
                                           uint64_t bytes, enum ga_memory_acquire_how how) {
    *a = (struct ga_memory_async){
        .turn = ga_memory_pool_turn(root), .named = handle != NULL, .full = a->full};
    struct ga_memory_pool *pool = handle
                                      ? ga_memory_pool_named(root, at->driver, handle, device)
                                      : ga_memory_pool_current(root, at->driver, (uint32_t)device);
    if (!pool)
        return GA_MEMORY_REFUSED; // no memory to account for it
    int on = pool->device;
    a->acquisition = (struct ga_memory_acquisition){.root = root,
                                                    .pool = pool,
                                                    .at = *at,
                                                    .bytes = bytes,
                                                    .kind = GA_MEMORY_ASYNC,
                                                    .full = a->full};
    if (on >= 0 && ga_memory_pool_acquire(&a->acquisition, a->full ? GA_MEMORY_ACQUIRE_NEW : how))
        return GA_MEMORY_ACQUIRED;
    ga_memory_pool_release(root, pool);
    a->acquisition.root = NULL;
    return on >= 0                        ? GA_MEMORY_REFUSED
           : on == GA_MEMORY_POOL_IN_HOST ? GA_MEMORY_OF_HOST
                                          : GA_MEMORY_OF_NONE;
}

// Moves the bytes to the pool that the block came from, if another thread may have changed the
// device's pool while the driver allocated. False: the bytes were refused there; none are acquired.
static bool move_to_pool_of(struct ga_memory_async *a, uint64_t address) {
    struct ga_memory_acquisition *t = &a->acquisition;
    if (GA_LIKELY(a->named || (a->turn != 0 && a->turn == ga_memory_pool_turn(t->root))))
        return true;
    struct ga_memory_pool *pool =
        ga_memory_pool_asked(t->root, t->at.driver, address, t->pool->device);
    if (pool == t->pool)
        ga_memory_pool_release(t->root, pool);
    if (!pool || pool == t->pool)
        return true;
    ga_memory_pool_undo(t);
    ga_memory_pool_release(t->root, t->pool);
    t->pool = pool;
    return ga_memory_pool_acquire(t, GA_MEMORY_ACQUIRE_NOW);
}

// Frees a block that has its bytes and its entry, and trims the pool by what it grew for the block.
// False: another thread has freed the block meanwhile, or the driver refuses to free it.
static bool undo_block(struct ga_memory_acquisition *t, uint64_t address) {
    struct ga_entry entry;
    if (!ga_memory_pool_remove(t->root, address, &entry))
        return false;
    if (!t->at.driver->free(address)) {
        ga_memory_pool_reinsert(t->root, &entry);
        return false;
    }
    ga_memory_pool_freed(t->root, &entry, false);
    ga_memory_pool_trim_to_charge(t->root, t->pool);
    return true;
}

static enum ga_memory_outcome finish(struct ga_memory_async *a, uint64_t address) {
    struct ga_memory_acquisition *t = &a->acquisition;
    if (GA_UNLIKELY(!move_to_pool_of(a, address))) {
        if (!t->at.driver->free(address))
            return GA_MEMORY_DONE;
        ga_memory_pool_trim_to_charge(t->root, t->pool);
        return GA_MEMORY_AGAIN;
    }
    if (GA_UNLIKELY(!ga_memory_pool_insert(t, address, t->bytes))) {
        bool freed = t->at.driver->free(address);
        if (freed)
            ga_memory_pool_undo(t);
        else
            ga_memory_pool_commit(
                t); // its bytes stay live, because without an entry no call can end them
        return freed ? GA_MEMORY_OVER : GA_MEMORY_DONE;
    }
    if (GA_LIKELY(ga_memory_pool_commit(t)))
        return GA_MEMORY_DONE;
    return undo_block(t, address) ? GA_MEMORY_AGAIN : GA_MEMORY_DONE;
}

enum ga_memory_outcome ga_memory_async_finish(struct ga_memory_async *a, uint64_t address) {
    enum ga_memory_outcome outcome = GA_MEMORY_DONE;
    if (address)
        outcome = finish(a, address);
    else
        ga_memory_pool_undo(&a->acquisition);
    ga_memory_pool_release(a->acquisition.root, a->acquisition.pool);
    return outcome;
}
