// SPDX-License-Identifier: Apache-2.0
// The table of the blocks of pools, the trimming of pools, and the destruction of pools. pool.c has
// the records of pools and their charge.
#include "memory/pool.h"

// Blocks

static struct ga_memory_pool *pool_of(const struct ga_entry *entry) {
    return (struct ga_memory_pool *)(uintptr_t)entry->context;
}

bool ga_memory_pool_insert(const struct ga_memory_acquisition *t, uint64_t address,
                           uint64_t bytes) {
    struct ga_entry old;
    struct ga_entry e = {.key = address,
                         .bytes = bytes,
                         .context = (uint64_t)(uintptr_t)t->pool,
                         .tag = t->tag,
                         .device = (uint8_t)t->pool->device,
                         .kind = (uint8_t)t->kind};
    bool put = ga_self_put(&ga_memory_of(t->root)->pools.blocks, &e, &old);
    // The program has freed an earlier block at this address by a call that the library does not
    // see.
    if (GA_UNLIKELY(old.key != 0))
        ga_memory_pool_freed(t->root, &old, false);
    return put;
}

bool ga_memory_pool_remove(struct ga_root *root, uint64_t address, struct ga_entry *entry) {
    return atomic_load_explicit(&ga_memory_of(root)->pools.blocks.most, memory_order_relaxed) !=
               0 &&
           ga_self_remove(&ga_memory_of(root)->pools.blocks, address, entry);
}

bool ga_memory_pool_has(struct ga_root *root, uint64_t address) {
    struct ga_entry e;
    return ga_self_find(&ga_memory_of(root)->pools.blocks, address, &e);
}

void ga_memory_pool_reinsert(struct ga_root *root, const struct ga_entry *entry) {
    struct ga_entry old;
    ga_self_put(&ga_memory_of(root)->pools.blocks, entry, &old);
}

void ga_memory_pool_freed(struct ga_root *root, const struct ga_entry *entry, bool reads) {
    struct ga_memory_pool *pool = pool_of(entry);
    struct ga_memory_pools *p = ga_memory_pools_begin(root);
    ga_memory_pool_refresh(root, pool);
    if (entry->tag == pool->tag)
        pool->live -= entry->bytes;
    if (pool->largest < entry->bytes)
        pool->largest = entry->bytes;
    ga_memory_pool_count(root, pool);
    pool->uses++;
    ga_memory_pools_end(p);
    if (reads)
        ga_memory_pool_update(root, pool);
    ga_memory_pool_release(root, pool);
}

// Trimming

// Makes the driver trim a pool down to keep bytes. False: the driver cannot, or refuses.
static bool trim(struct ga_root *root, struct ga_memory_pool *pool, uint64_t keep) {
    struct ga_memory_pool now = ga_memory_pool_ask(root, pool);
    bool trimmed = now.driver->trim(root, &now, keep);
    ga_memory_pool_answered(root, pool);
    return trimmed;
}

void ga_memory_pool_trim_to_charge(struct ga_root *root, struct ga_memory_pool *pool) {
    trim(root, pool, ga_memory_pool_copy(root, pool).charge);
    ga_memory_pool_update(root, pool);
}

// Returns how many bytes a pool is charged with beyond its blocks and pending frees.
static uint64_t unused_in(const struct ga_memory_pool *pool) {
    uint64_t held = pool->live + pool->freed;
    return pool->charge > held ? pool->charge - held : 0;
}

// Trims a pool by bytes. If too few come back, because the driver frees only whole pieces without
// blocks, trims as far as possible. If still too few come back, the pool is not trimmed again until
// a block is acquired from it or its charge falls. Returns the number of bytes that came back.
static uint64_t trim_by(struct ga_root *root, struct ga_memory_pool *pool, uint64_t bytes) {
    struct ga_memory_pool copy = ga_memory_pool_copy(root, pool);
    uint64_t unused = unused_in(&copy);
    bytes = bytes < unused ? bytes : unused;
    if (bytes == 0 || copy.untrimmed == copy.turn)
        return 0;
    uint64_t returned =
        trim(root, pool, copy.charge - bytes) ? ga_memory_pool_update(root, pool) : 0;
    if (returned < bytes && trim(root, pool, 0))
        returned += ga_memory_pool_update(root, pool);
    if (returned < bytes) {
        struct ga_memory_pools *p = ga_memory_pools_begin(root);
        pool->untrimmed = pool->turn;
        ga_memory_pools_end(p);
    }
    return returned;
}

// Returns the record after pool in the list; pool NULL: the first. NULL: there are no more.
static struct ga_memory_pool *next_of(struct ga_memory_pools *p,
                                      const struct ga_memory_pool *pool) {
    ga_self_lock(&p->lock);
    struct ga_memory_pool *next = pool ? pool->next : p->first;
    ga_self_unlock(&p->lock);
    return next;
}

// Does for one pool what ga_memory_pool_reap does for all. device −1: any device.
static uint64_t reap_one(struct ga_root *root, struct ga_memory_pool *pool, int device,
                         uint64_t wanted) {
    struct ga_memory_pools *p = &ga_memory_of(root)->pools;
    uint64_t returned = 0;
    ga_self_lock(&p->lock);
    bool ours = pool->kind != GA_MEMORY_POOL_UNUSED && pool->device >= 0 &&
                (device < 0 || pool->device == device);
    bool unused = unused_in(pool) != 0;
    pool->uses += ours;
    ga_self_unlock(&p->lock);
    if (!ours)
        return 0;
    if (unused)
        returned = ga_memory_pool_update(root, pool);
    if (unused && returned < wanted)
        returned += trim_by(root, pool, wanted - returned);
    return returned + ga_memory_pool_release(root, pool);
}

uint64_t ga_memory_pool_reap(struct ga_root *root, int device, uint64_t wanted) {
    struct ga_memory_pools *p = &ga_memory_of(root)->pools;
    uint64_t returned = 0;
    for (struct ga_memory_pool *pool = next_of(p, NULL); pool; pool = next_of(p, pool))
        returned += reap_one(root, pool, device, wanted > returned ? wanted - returned : 0);
    return returned;
}

// Changes of a device's pool, and the destruction of pools

struct ga_memory_pools *ga_memory_pool_change_begin(struct ga_root *root) {
    struct ga_memory_pools *p = root ? &ga_memory_of(root)->pools : NULL;
    if (p) {
        atomic_fetch_add(&p->changing, 1);
        atomic_fetch_add(&p->changes, 1);
    }
    return p;
}

void ga_memory_pool_change_end(struct ga_memory_pools *p) {
    if (p)
        atomic_fetch_sub(&p->changing, 1);
}

// Sets the handle of a pool. Returns the number of calls of the driver about the pool that are
// under way.
static uint32_t set_handle(struct ga_root *root, struct ga_memory_pool *pool, void *handle) {
    struct ga_memory_pools *p = &ga_memory_of(root)->pools;
    ga_self_lock(&p->lock);
    pool->handle = handle;
    uint32_t asking = pool->asking;
    ga_self_unlock(&p->lock);
    return asking;
}

#define ASKED_MS                                                                                   \
    5000 // longest wait of a thread that destroys a pool for other threads' calls about the pool

struct ga_memory_pool *ga_memory_pool_destroy_begin(struct ga_root *root,
                                                    const struct ga_memory_driver *driver,
                                                    void *handle) {
    struct ga_memory_pool *pool = ga_memory_pool_find(root, driver, handle);
    uint64_t end = ga_os_now_ms() + ASKED_MS;
    while (pool && set_handle(root, pool, NULL) != 0 && ga_os_now_ms() < end)
        ga_os_sleep_us(20);
    ga_memory_pool_change_begin(root);
    return pool;
}

void ga_memory_pool_destroy_end(struct ga_root *root, struct ga_memory_pool *pool, void *handle,
                                bool ended) {
    ga_memory_pool_change_end(&ga_memory_of(root)->pools);
    if (pool && !ended)
        set_handle(root, pool, handle);
    if (pool)
        ga_memory_pool_release(root, pool);
}

void ga_memory_pool_trimmed(struct ga_root *root, const struct ga_memory_driver *driver,
                            void *handle) {
    struct ga_memory_pool *pool = ga_memory_pool_find(root, driver, handle);
    if (!pool)
        return;
    ga_memory_pool_update(root, pool);
    ga_memory_pool_release(root, pool);
}
