// SPDX-License-Identifier: Apache-2.0
#include "cuda/async.h"

#include "cuda/capture.h"
#include "cuda/draw.h"
#include "cuda/host.h"
#include "cuda/memory.h"
#include "cuda/pending.h"
#include "cuda/pool.h"
#include "cuda/state.h"

// One allocation on its way: drawn, then the driver, then settled. Its bytes come from a block of
// the same size that was freed on the same stream, which the driver uses again at once; or they
// are drawn. What the pool then holds says whether that was right.
struct claim {
    struct ga_cuda_draw draw; // of root NULL: none, and then
    struct ga_claim host;     // one where the pool is in the host, or of root NULL
    struct ga_cuda_pending_at at;
    uint64_t turn; // of ga_cuda_pool_turn, from before the device's pool was looked up
    bool named;    // a pool that the program named
    bool again;
};

static struct ga_entry entry_of(const struct ga_cuda_draw *d, ga_address address) {
    return (struct ga_entry){
        .key = address,
        .bytes = d->bytes,
        .context = (uint64_t)(uintptr_t)d->pool, // a pool's memory outlives contexts
        .tag = d->tag,
        .device = (uint8_t)d->device,
        .kind = GA_MEMORY_ASYNC,
    };
}

static bool again(struct claim *c) {
    struct ga_cuda_draw *d = &c->draw;
    d->device = (uint32_t)ga_cuda_pool_device(d->pool);
    d->tag = atomic_load(&d->root->tag);
    d->admitted = 0;
    struct ga_entry like = entry_of(d, 0);
    c->again = ga_cuda_pending_user(d->root, d->device, &c->at, &d->user) &&
               ga_cuda_pending_recall(d->root, &like, c->at.stream, c->at.context, &d->tag);
    return c->again;
}

static void undo(struct claim *c) {
    struct ga_cuda_draw *d = &c->draw;
    struct ga_entry entry = entry_of(d, 0);
    if (!c->again) {
        ga_cuda_draw_undo(d);
        return;
    }
    ga_cuda_pending_add(d->root, &entry, &c->at);
}

// Where the device's pool changed while the driver was asked, the block is charged to the one that
// it came from. False: that was refused, and nothing is drawn.
static bool follow(struct claim *c, ga_address address) {
    struct ga_cuda_draw *d = &c->draw;
    if (GA_LIKELY(c->named || (c->turn != 0 && c->turn == ga_cuda_pool_turn(d->root))))
        return true;
    struct ga_cuda_pool *pool = ga_cuda_pool_asked(d->root, address, (int)d->device);
    if (!pool || pool == d->pool)
        return true;
    undo(c);
    c->again = false;
    d->pool = pool;
    return ga_cuda_draw(d);
}

static bool free_now(ga_address address) {
    int mode = ga_cuda_capture_exchange(GA_CUDA_CAPTURE_MODE_RELAXED);
    ga_result result = GA_REAL(cuMemFree_v2)(address);
    ga_cuda_capture_exchange(mode);
    return result == GA_CUDA_SUCCESS;
}

// The pool grew by more than was admitted, and for that there is no room: the block goes, and what
// came with it. False: it cannot.
static bool give_up(struct claim *c, ga_address address) {
    struct ga_cuda_draw *d = &c->draw;
    struct ga_entry entry;
    if (!ga_withdraw(d->root, address, &entry))
        return false;
    if (!free_now(address)) {
        ga_hold(d->root, &entry);
        return false;
    }
    ga_cuda_pool_lost(d->root, d->pool, entry.bytes, entry.tag);
    ga_cuda_pool_shed(d->root, d->pool);
    ga_interface_reap(d->root, d->device, 0);
    return true;
}

static ga_result settle_drawn(struct claim *c, ga_result result, ga_address address) {
    struct ga_cuda_draw *d = &c->draw;
    if (result != GA_CUDA_SUCCESS) {
        undo(c);
        return result;
    }
    if (GA_UNLIKELY(!follow(c, address))) {
        if (!free_now(address))
            return result;
        ga_cuda_pool_shed(d->root, d->pool);
        return GA_CUDA_OUT_OF_MEMORY;
    }
    struct ga_entry entry = entry_of(d, address);
    // Without memory to remember it by: better no block than one that nobody can account for.
    if (GA_UNLIKELY(!ga_hold(d->root, &entry))) {
        if (!free_now(address))
            return result;
        undo(c);
        return GA_CUDA_OUT_OF_MEMORY;
    }
    if (!c->again)
        ga_cuda_pool_grew(d->root, d->pool, d->admitted, d->tag);
    if (d->admitted == 0)
        ga_cuda_pending_expect(d->root, c->at.stream, d->bytes);
    if (GA_LIKELY(ga_cuda_pool_balance(d->root, d->pool, d->admitted, &d->user)))
        return result;
    return give_up(c, address) ? GA_CUDA_OUT_OF_MEMORY : result;
}

// False: refused.
static bool open_claim(struct claim *c, uint64_t bytes, bool named, ga_pool handle,
                       ga_stream stream) {
    uint64_t context;
    struct ga_root *root = ga_root_get();
    c->draw.root = c->host.root = NULL;
    if (bytes == 0 || ga_cuda_capturing(stream))
        return true;
    if (!root)
        return !ga_root_denies();
    int device = ga_cuda_device_of_stream(root, stream, &context);
    if (device < 0)
        return true;
    c->named = named;
    c->turn = ga_cuda_pool_turn(root);
    struct ga_cuda_pool *pool = named ? ga_cuda_pool_named(root, handle, device)
                                      : ga_cuda_pool_current(root, (uint32_t)device);
    if (!pool)
        return false; // no memory to account for it
    if (ga_cuda_pool_device(pool) == GA_CUDA_POOL_IN_HOST)
        return ga_cuda_host_open_pooled(&c->host, root, bytes);
    if (ga_cuda_pool_device(pool) < 0)
        return true;
    c->at = ga_cuda_pending_at(root, stream);
    c->draw =
        (struct ga_cuda_draw){.root = root, .pool = pool, .bytes = bytes, .kind = GA_MEMORY_ASYNC};
    return again(c) || ga_cuda_draw(&c->draw);
}

static ga_result settle(struct claim *c, ga_result result, const ga_address *address) {
    ga_address at = result == GA_CUDA_SUCCESS ? *address : 0;
    void *in_host = (void *)(uintptr_t)at;
    return c->draw.root ? settle_drawn(c, result, at)
                        : ga_cuda_host_settle(&c->host, result, &in_host, GA_CUDA_HOST_POOLED);
}

ga_result ga_cuda_alloc_async(GA_FN_cuMemAllocAsync *real, ga_stream effective, ga_address *address,
                              size_t bytes, ga_stream stream) {
    struct claim c;
    if (!open_claim(&c, bytes, false, NULL, effective))
        return GA_CUDA_OUT_OF_MEMORY;
    return settle(&c, real(address, bytes, stream), address);
}

ga_result ga_cuda_alloc_from_pool(GA_FN_cuMemAllocFromPoolAsync *real, ga_stream effective,
                                  ga_address *address, size_t bytes, ga_pool pool,
                                  ga_stream stream) {
    struct claim c;
    if (!open_claim(&c, bytes, true, pool, effective))
        return GA_CUDA_OUT_OF_MEMORY;
    return settle(&c, real(address, bytes, pool, stream), address);
}

ga_result ga_cuda_free_async(GA_FN_cuMemFreeAsync *real, ga_stream effective, ga_address address,
                             ga_stream stream) {
    struct ga_claim c;
    // Captured, it frees when the graph runs: the block stays, and its charge.
    struct ga_root *root = ga_root_get();
    if (!root || ga_cuda_capturing(effective))
        return real(address, stream);
    struct ga_cuda_pending_at at = ga_cuda_pending_at(root, effective);
    enum ga_cuda_freed what = ga_cuda_memory_give(&c, address);
    ga_result result = real(address, stream);
    if (what != GA_CUDA_FREED_BLOCK || result != GA_CUDA_SUCCESS)
        return ga_cuda_memory_given(&c, what, result);
    ga_cuda_pending_add(c.root, &c.entry, &at);
    return result;
}

ga_result ga_cuda_synchronized(ga_result result) {
    struct ga_root *root = result == GA_CUDA_SUCCESS ? ga_root_get() : NULL;
    for (uint32_t device = 0;
         root && device < GA_DEVICES && atomic_load(&root->devices[device].known); device++)
        ga_interface_reap(root, device, 0);
    return result;
}
