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
    ga_cuda_pools_end(p);
    if (reads)
        ga_cuda_pool_update(root, pool);
}

// Giving up

// Has the driver trim a pool down to keep bytes. pool is a copy of the record. False: it cannot.
static bool trim(struct ga_root *root, const struct ga_cuda_pool *pool, uint64_t keep) {
    int mode = ga_cuda_capture_exchange(GA_CUDA_CAPTURE_MODE_RELAXED);
    bool trimmed =
        pool->kind == GA_CUDA_POOL_OF_GRAPHS
            ? GA_ASK(cuDeviceGraphMemTrim, ga_cuda_device_ordinal(root, (uint32_t)pool->device))
            : pool->handle && GA_ASK(cuMemPoolTrimTo, pool->handle, keep);
    ga_cuda_capture_exchange(mode);
    return trimmed;
}

void ga_cuda_pool_shed(struct ga_root *root, struct ga_cuda_pool *pool) {
    struct ga_cuda_pool copy = ga_cuda_pool_copy(root, pool);
    trim(root, &copy, copy.charge);
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
    uint64_t given = trim(root, &copy, copy.charge - bytes) ? ga_cuda_pool_update(root, pool) : 0;
    if (given < bytes && trim(root, &copy, 0))
        given += ga_cuda_pool_update(root, pool);
    if (given < bytes) {
        struct ga_cuda_pools *p = ga_cuda_pools_begin(root);
        pool->untrimmed = pool->turn;
        ga_cuda_pools_end(p);
    }
    return given;
}

uint64_t ga_cuda_pool_reap(struct ga_root *root, int device, uint64_t wanted) {
    struct ga_cuda_pools *p = &ga_cuda(root)->pools;
    struct ga_cuda_pool copy;
    uint64_t given = 0;
    ga_self_lock(&p->lock);
    struct ga_cuda_pool *pool = p->first;
    ga_self_unlock(&p->lock);
    for (; pool; pool = copy.next) {
        copy = ga_cuda_pool_copy(root, pool);
        bool ours = copy.kind != GA_CUDA_POOL_UNUSED && copy.device >= 0 &&
                    (device < 0 || copy.device == device);
        if (!ours || kept_by(&copy) == 0)
            continue;
        given += ga_cuda_pool_update(root, pool);
        if (given < wanted)
            given += squeeze(root, pool, wanted - given);
    }
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
    if (device >= 0 || type != GA_CUDA_ALLOCATION_MANAGED)
        ga_cuda_pool_make(root, *pool, device, GA_CUDA_POOL_ORDINARY);
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

static void set_handle(struct ga_root *root, struct ga_cuda_pool *pool, ga_pool handle,
                       bool ending) {
    struct ga_cuda_pools *p = &ga_cuda(root)->pools;
    bool held = ga_mutex_lock(&ga_cuda(root)->asking, 5000);
    ga_self_lock(&p->lock);
    pool->handle = handle;
    pool->ending = ending;
    ga_self_unlock(&p->lock);
    if (held)
        ga_mutex_unlock(&ga_cuda(root)->asking);
}

// The handle is forgotten before the driver is asked, while no other thread asks about the pool,
// because the driver may give it out again at once. The pool's blocks live on, and what it holds is
// gone with the last of them.
static ga_result destroy(struct ga_root *root, GA_FN_cuMemPoolDestroy *real,
                         struct ga_cuda_pool *pool, ga_pool handle) {
    set_handle(root, pool, NULL, true);
    struct ga_cuda_pools *changing = ga_cuda_pool_change_begin(root);
    ga_result result = real(handle);
    ga_cuda_pool_change_end(changing);
    set_handle(root, pool, result == GA_CUDA_SUCCESS ? NULL : handle, false);
    if (result == GA_CUDA_SUCCESS)
        ga_cuda_pool_update(root, pool); // it may be over
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

// Reads a pool after a call that may have made it give up something.
static void update_trimmed(struct ga_root *root, struct ga_cuda_pool *pool) {
    if (!pool || !ga_mutex_lock(&ga_cuda(root)->asking, 100))
        return; // the next thread that reaps reads it
    ga_cuda_pool_update(root, pool);
    ga_mutex_unlock(&ga_cuda(root)->asking);
}

ga_result ga_cuda_pool_trim(GA_FN_cuMemPoolTrimTo *real, ga_pool handle, size_t keep) {
    struct ga_root *root = ga_root_get();
    ga_result result = real(handle, keep);
    if (root && result == GA_CUDA_SUCCESS)
        update_trimmed(root, ga_cuda_pool_find(root, handle));
    return result;
}

ga_result ga_cuda_pool_trim_graphs(GA_FN_cuDeviceGraphMemTrim *real, ga_cu_device device) {
    struct ga_root *root = ga_root_get();
    ga_result result = real(device);
    int number = root && result == GA_CUDA_SUCCESS ? ga_cuda_device_number(root, device) : -1;
    if (number >= 0)
        update_trimmed(root, ga_cuda_pool_of_kind(root, (uint32_t)number, GA_CUDA_POOL_OF_GRAPHS));
    return result;
}
