// SPDX-License-Identifier: Apache-2.0
// The blocks of pools, what makes pools give up memory, and the calls by which the program makes,
// changes, trims and ends pools. The sums are in pool.c.
#include "core/import.h"
#include "cuda/capture.h"
#include "cuda/device.h"
#include "cuda/pool.h"

// Blocks

static struct ga_cuda_pool *pool_of(const struct ga_entry *entry) {
    return (struct ga_cuda_pool *)(uintptr_t)entry->context;
}

bool ga_cuda_pool_hold(const struct ga_cuda_take *t, ga_address address, uint64_t bytes) {
    struct ga_entry old;
    struct ga_entry e = {.key = address,
                         .bytes = bytes,
                         .context = (uint64_t)(uintptr_t)t->pool,
                         .tag = t->tag,
                         .device = (uint8_t)t->pool->device,
                         .kind = (uint8_t)t->kind};
    bool put = ga_self_put(&ga_cuda(t->root)->pools.blocks, &e, &old);
    if (GA_UNLIKELY(old.key != 0)) // a block at this address was freed by a call that we do not see
        ga_cuda_pool_freed(t->root, &old, false);
    return put;
}

bool ga_cuda_pool_withdraw(struct ga_root *root, ga_address address, struct ga_entry *entry) {
    return atomic_load_explicit(&ga_cuda(root)->pools.blocks.most, memory_order_relaxed) != 0 &&
           ga_self_take(&ga_cuda(root)->pools.blocks, address, entry);
}

bool ga_cuda_pool_holds(struct ga_root *root, ga_address address) {
    struct ga_entry e;
    return ga_self_find(&ga_cuda(root)->pools.blocks, address, &e);
}

void ga_cuda_pool_put_back(struct ga_root *root, const struct ga_entry *entry) {
    struct ga_entry old;
    ga_self_put(&ga_cuda(root)->pools.blocks, entry, &old);
}

void ga_cuda_pool_freed(struct ga_root *root, const struct ga_entry *entry, bool reads) {
    struct ga_cuda_pool *pool = pool_of(entry);
    struct ga_cuda_pools *p = ga_cuda_pools_begin(root);
    ga_cuda_pool_refresh(root, pool);
    if (entry->tag == pool->tag)
        pool->live -= entry->bytes;
    if (pool->largest < entry->bytes)
        pool->largest = entry->bytes;
    ga_cuda_pool_count(root, pool);
    pool->uses++;
    ga_cuda_pools_end(p);
    if (reads)
        ga_cuda_pool_update(root, pool);
    ga_cuda_pool_release(root, pool);
}

// Giving up

// Has the driver trim a pool down to keep bytes. False: it cannot.
static bool trim(struct ga_root *root, struct ga_cuda_pool *pool, uint64_t keep) {
    int mode = ga_cuda_capture_exchange(GA_CUDA_CAPTURE_MODE_RELAXED);
    struct ga_cuda_pool now = ga_cuda_pool_ask(root, pool);
    bool trimmed =
        now.kind == GA_CUDA_POOL_OF_GRAPHS
            ? GA_ASK(cuDeviceGraphMemTrim, ga_cuda_device_ordinal(root, (uint32_t)now.device))
            : now.handle && GA_ASK(cuMemPoolTrimTo, now.handle, keep);
    ga_cuda_pool_answered(root, pool);
    ga_cuda_capture_exchange(mode);
    return trimmed;
}

void ga_cuda_pool_shed(struct ga_root *root, struct ga_cuda_pool *pool) {
    trim(root, pool, ga_cuda_pool_copy(root, pool).charge);
    ga_cuda_pool_update(root, pool);
}

static uint64_t kept_by(const struct ga_cuda_pool *pool) {
    uint64_t held = pool->live + pool->freed;
    return pool->charge > held ? pool->charge - held : 0;
}

// Trims a pool by bytes, or as far as possible if that gives fewer: a pool gives up whole pieces of
// memory, and blocks may lie in each of them. Returns how many bytes came back.
static uint64_t squeeze(struct ga_root *root, struct ga_cuda_pool *pool, uint64_t bytes) {
    struct ga_cuda_pool copy = ga_cuda_pool_copy(root, pool);
    uint64_t kept = kept_by(&copy);
    bytes = bytes < kept ? bytes : kept;
    if (bytes == 0 || copy.untrimmed == copy.turn)
        return 0;
    uint64_t given = trim(root, pool, copy.charge - bytes) ? ga_cuda_pool_update(root, pool) : 0;
    if (given < bytes && trim(root, pool, 0))
        given += ga_cuda_pool_update(root, pool);
    if (given < bytes) {
        struct ga_cuda_pools *p = ga_cuda_pools_begin(root);
        pool->untrimmed = pool->turn;
        ga_cuda_pools_end(p);
    }
    return given;
}

// Returns the record behind another one (NULL: the first); NULL: that was the last.
static struct ga_cuda_pool *next_of(struct ga_cuda_pools *p, const struct ga_cuda_pool *pool) {
    ga_self_lock(&p->lock);
    struct ga_cuda_pool *next = pool ? pool->next : p->first;
    ga_self_unlock(&p->lock);
    return next;
}

// Does for one pool what ga_cuda_pool_reap does for all.
static uint64_t reap_one(struct ga_root *root, struct ga_cuda_pool *pool, int device,
                         uint64_t wanted) {
    struct ga_cuda_pools *p = &ga_cuda(root)->pools;
    uint64_t given = 0;
    ga_self_lock(&p->lock);
    bool ours = pool->kind != GA_CUDA_POOL_UNUSED && pool->device >= 0 &&
                (device < 0 || pool->device == device);
    bool kept = kept_by(pool) != 0;
    pool->uses += ours;
    ga_self_unlock(&p->lock);
    if (!ours)
        return 0;
    if (kept)
        given = ga_cuda_pool_update(root, pool);
    if (kept && given < wanted)
        given += squeeze(root, pool, wanted - given);
    return given + ga_cuda_pool_release(root, pool);
}

uint64_t ga_cuda_pool_reap(struct ga_root *root, int device, uint64_t wanted) {
    struct ga_cuda_pools *p = &ga_cuda(root)->pools;
    uint64_t given = 0;
    for (struct ga_cuda_pool *pool = next_of(p, NULL); pool; pool = next_of(p, pool))
        given += reap_one(root, pool, device, wanted > given ? wanted - given : 0);
    return given;
}

// The program's own calls

// A pool of managed memory may have no device: then it is charged to the device of the stream on
// which the program first allocates from it. It gets its record in that allocation, not here.
ga_result ga_cuda_pool_met(ga_result result, const ga_pool *pool, const struct ga_cu_location *at,
                           int type) {
    struct ga_root *root = result == GA_CUDA_SUCCESS && pool && at ? ga_root_get() : NULL;
    if (!root)
        return result;
    int device = ga_cuda_in_host(at->type) ? GA_CUDA_POOL_IN_HOST : ga_cuda_device_at(root, at);
    if (device < 0 && type == GA_CUDA_ALLOCATION_MANAGED)
        return result;
    struct ga_cuda_pool *met = ga_cuda_pool_make(root, *pool, device, GA_CUDA_POOL_ORDINARY);
    if (met)
        ga_cuda_pool_release(root, met);
    return result;
}

struct ga_cuda_pools *ga_cuda_pool_change_begin(struct ga_root *root) {
    struct ga_cuda_pools *p = root ? &ga_cuda(root)->pools : NULL;
    if (p) {
        atomic_fetch_add(&p->changing, 1);
        atomic_fetch_add(&p->changes, 1);
    }
    return p;
}

void ga_cuda_pool_change_end(struct ga_cuda_pools *p) {
    if (p)
        atomic_fetch_sub(&p->changing, 1);
}

// Sets the handle of a pool. Returns how many calls ask the driver about the pool.
static uint32_t set_handle(struct ga_root *root, struct ga_cuda_pool *pool, ga_pool handle) {
    struct ga_cuda_pools *p = &ga_cuda(root)->pools;
    ga_self_lock(&p->lock);
    pool->handle = handle;
    uint32_t asking = pool->asking;
    ga_self_unlock(&p->lock);
    return asking;
}

#define ASKED_MS 5000 // how long a thread that destroys a pool waits for those that ask about it

// The handle is forgotten before the driver is asked, and those that have read it are waited for,
// because the driver may give it out again at once. The pool's blocks live on, and what it holds is
// gone with the last of them.
static ga_result destroy(struct ga_root *root, GA_FN_cuMemPoolDestroy *real,
                         struct ga_cuda_pool *pool, ga_pool handle) {
    uint64_t end = ga_os_now_ms() + ASKED_MS;
    while (set_handle(root, pool, NULL) != 0 && ga_os_now_ms() < end)
        ga_os_sleep_us(20);
    struct ga_cuda_pools *changing = ga_cuda_pool_change_begin(root);
    ga_result result = real(handle);
    ga_cuda_pool_change_end(changing);
    if (result != GA_CUDA_SUCCESS)
        set_handle(root, pool, handle);
    ga_cuda_pool_release(root, pool);
    return result;
}

ga_result ga_cuda_pool_destroy(GA_FN_cuMemPoolDestroy *real, ga_pool handle) {
    struct ga_root *root = ga_root_get();
    struct ga_cuda_pool *pool = root ? ga_cuda_pool_find(root, handle) : NULL;
    ga_result result = pool ? destroy(root, real, pool, handle) : real(handle);
    if (root && result == GA_CUDA_SUCCESS)
        ga_import_sweep(root, (uint64_t)(uintptr_t)handle);
    return result;
}

ga_result ga_cuda_pool_trim(GA_FN_cuMemPoolTrimTo *real, ga_pool handle, size_t keep) {
    struct ga_root *root = ga_root_get();
    struct ga_cuda_pool *pool = root ? ga_cuda_pool_find(root, handle) : NULL;
    ga_result result = real(handle, keep);
    if (pool && result == GA_CUDA_SUCCESS)
        ga_cuda_pool_update(root, pool);
    if (pool)
        ga_cuda_pool_release(root, pool);
    return result;
}

ga_result ga_cuda_pool_trim_graphs(GA_FN_cuDeviceGraphMemTrim *real, ga_cu_device device) {
    struct ga_root *root = ga_root_get();
    ga_result result = real(device);
    int number = root && result == GA_CUDA_SUCCESS ? ga_cuda_device_number(root, device) : -1;
    struct ga_cuda_pool *pool =
        number >= 0 ? ga_cuda_pool_of_kind(root, (uint32_t)number, GA_CUDA_POOL_OF_GRAPHS) : NULL;
    if (pool)
        ga_cuda_pool_update(root, pool);
    return result;
}
