// SPDX-License-Identifier: Apache-2.0
// Changes of the sums that sums.h declares, with the pools locked.
#include "memory/sums.h"

#include "core/credit.h"

struct ga_memory_pools *ga_memory_pools_begin(struct ga_root *root) {
    struct ga_memory_pools *p = &ga_memory_of(root)->pools;
    ga_move_begin(root);
    ga_spin_lock(&p->lock);
    return p;
}

void ga_memory_pools_end(struct ga_memory_pools *p) {
    ga_spin_unlock(&p->lock);
    ga_move_end();
}

struct ga_memory_pool ga_memory_pool_copy(struct ga_root *root, const struct ga_memory_pool *pool) {
    struct ga_memory_pools *p = &ga_memory_of(root)->pools;
    ga_self_lock(&p->lock);
    struct ga_memory_pool copy = *pool;
    ga_self_unlock(&p->lock);
    return copy;
}

// Frees

bool ga_memory_frees_at(const struct ga_memory_frees *f, const struct ga_memory_at *at) {
    return f->at.stream == at->stream && f->at.handle == at->handle &&
           f->at.context == at->context && f->at.thread == at->thread && f->at.stream != NULL;
}

static struct ga_memory_frees *find_locked(const struct ga_memory_pools *p,
                                           const struct ga_memory_pool *pool,
                                           const struct ga_memory_at *at) {
    struct ga_memory_frees *f = p->freed;
    while (f && (f->pool != pool || !ga_memory_frees_at(f, at)))
        f = f->next;
    return f;
}

// Returns a record that another stream may use; NULL: none. A watched record is not returned,
// because the driver's host function will write to it.
static struct ga_memory_frees *unused_locked(const struct ga_memory_pools *p) {
    struct ga_memory_frees *f = p->freed;
    while (f && (ga_memory_frees_pending(f) || (f->watched && !atomic_load(&f->passed))))
        f = f->next;
    return f;
}

struct ga_memory_pools *ga_memory_frees_begin(struct ga_root *root, struct ga_memory_pool *pool,
                                              const struct ga_memory_at *at,
                                              struct ga_memory_frees **record) {
    struct ga_memory_pools *p = ga_memory_pools_begin(root);
    struct ga_memory_frees *f = find_locked(p, pool, at);
    if (!f && !(f = unused_locked(p))) {
        ga_memory_pools_end(p);
        struct ga_memory_frees *fresh = ga_root_alloc(root, sizeof *fresh);
        p = ga_memory_pools_begin(root);
        atomic_store(&p->in_use, 1);
        if (fresh) {
            fresh->next = p->freed;
            p->freed = fresh;
        }
        f = find_locked(p, pool, at);
        f = f ? f : fresh;
    }
    if (f && !ga_memory_frees_pending(f))
        *f = (struct ga_memory_frees){.next = f->next, .pool = pool, .at = *at};
    *record = f;
    return p;
}

uint64_t ga_memory_frees_subtract(struct ga_memory_pools *p, struct ga_memory_pool *pool,
                                  const struct ga_memory_at *at, uint64_t bytes) {
    struct ga_memory_frees *f = pool->freed ? find_locked(p, pool, at) : NULL;
    uint64_t taken = !f ? 0 : f->bytes < bytes ? f->bytes : bytes;
    if (f)
        f->bytes -= taken;
    pool->freed -= taken;
    return taken;
}

// If another stream uses the record by now, does not add the bytes to freed. They stay in charge
// until the next reading, which shows what the pool has reserved.
void ga_memory_frees_restore(struct ga_memory_pools *p, struct ga_memory_pool *pool,
                             const struct ga_memory_at *at, uint64_t bytes) {
    struct ga_memory_frees *f = bytes ? find_locked(p, pool, at) : NULL;
    if (!f)
        return;
    f->bytes += bytes;
    f->turn = ++p->frees;
    pool->freed += bytes;
}

void ga_memory_frees_forget(struct ga_memory_pools *p, struct ga_memory_pool *pool,
                            uint64_t bytes) {
    for (struct ga_memory_frees *f = p->freed; f && bytes != 0; f = f->next) {
        if (f->pool != pool)
            continue;
        uint64_t less = f->bytes < bytes ? f->bytes : bytes;
        f->bytes -= less;
        pool->freed -= less;
        bytes -= less;
    }
}

// Pools

// Sets the part of a sum that belongs to a pool from *counted to now.
static void count_in(_Atomic uint64_t *sum, uint64_t *counted, uint64_t now) {
    atomic_fetch_add(sum, now - *counted);
    *counted = now;
}

void ga_memory_pool_count(struct ga_root *root, struct ga_memory_pool *pool) {
    struct ga_device *device = &root->devices[pool->device];
    uint64_t held = pool->live + pool->freed;
    count_in(&root->pooled[pool->device], &pool->counted.charge, pool->charge);
    count_in(&device->unexecuted, &pool->counted.unexecuted, pool->freed);
    count_in(&device->pool_unused, &pool->counted.pool_unused,
             pool->charge > held ? pool->charge - held : 0);
    // The lease page shows the device's pending bytes to users; no decision depends on them.
    struct ga_view *view = atomic_load(&root->view);
    uint32_t slot = view && view->tag == pool->tag ? atomic_load(&view->slot[pool->device]) : 0;
    if (slot)
        atomic_store((ga_word *)&view->page->lease[slot - 1].pending,
                     ga_root_pending(root, (uint32_t)pool->device));
}

// A new session begins with root.pooled at 0, so that counted.charge must be 0 as well.
void ga_memory_pool_refresh(struct ga_root *root, struct ga_memory_pool *pool) {
    uint16_t now = atomic_load(&root->tag);
    if (pool->tag == now || pool->device < 0)
        return;
    ga_memory_frees_forget(&ga_memory_of(root)->pools, pool, pool->freed);
    pool->stale += pool->charge;
    pool->live = pool->asked = pool->blocks = pool->charge = pool->counted.charge = 0;
    pool->tag = now;
    pool->turn++;
    ga_memory_pool_count(root, pool);
}
