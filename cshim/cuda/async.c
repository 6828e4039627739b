// SPDX-License-Identifier: Apache-2.0
#include "cuda/async.h"

#include "core/admit.h"
#include "cuda/capture.h"
#include "cuda/host.h"
#include "cuda/memory.h"
#include "cuda/pending.h"
#include "cuda/pool.h"
#include "cuda/state.h"

// An allocation: taken from its pool, then the driver, then settled.
struct claim {
    struct ga_cuda_take take; // root NULL: nothing is taken of a device
    struct ga_claim host;     // of a pool in host memory; root NULL: nothing is taken of the host
    uint64_t turn;            // of ga_cuda_pool_turn, from before the device's pool was looked up
    bool named;               // the program named the pool
};

// Takes the bytes of an allocation. False: refused. True: settle follows when the driver has
// answered. how is ignored for pools of host memory.
static bool open_claim(struct claim *c, uint64_t bytes, bool named, ga_pool handle,
                       ga_stream stream, enum ga_cuda_take_how how) {
    uint64_t context;
    struct ga_root *root = ga_root_get();
    c->take.root = c->host.root = NULL;
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
    int on = pool->device;
    if (on < 0)
        ga_cuda_pool_release(root, pool);
    if (on == GA_CUDA_POOL_IN_HOST)
        return ga_cuda_host_open_pooled(&c->host, root, bytes);
    if (on < 0)
        return true;
    c->take = (struct ga_cuda_take){.root = root,
                                    .pool = pool,
                                    .at = ga_cuda_pending_at(root, stream),
                                    .bytes = bytes,
                                    .kind = GA_MEMORY_ASYNC};
    if (ga_cuda_pool_take(&c->take, how))
        return true;
    ga_cuda_pool_release(root, pool);
    return false;
}

// outcome is the result of an allocation that the driver has answered.
enum outcome {
    DONE,
    AGAIN,   // the driver took more than there was room for, and has it back: ask for all of it
    REFUSED, // there is no room, or no memory to remember the block by
};

// Has the driver free a block that the program never saw. False: it does not.
static bool free_now(ga_address address) {
    int mode = ga_cuda_capture_exchange(GA_CUDA_CAPTURE_MODE_RELAXED);
    ga_result result = GA_REAL(cuMemFree_v2)(address);
    ga_cuda_capture_exchange(mode);
    return result == GA_CUDA_SUCCESS;
}

// If the device's pool changed while the driver was asked, charges the block to the pool that it
// came from. False: that was refused, and nothing is taken.
static bool follow(struct claim *c, ga_address address) {
    struct ga_cuda_take *t = &c->take;
    if (GA_LIKELY(c->named || (c->turn != 0 && c->turn == ga_cuda_pool_turn(t->root))))
        return true;
    struct ga_cuda_pool *pool = ga_cuda_pool_asked(t->root, address, t->pool->device);
    if (pool == t->pool)
        ga_cuda_pool_release(t->root, pool);
    if (!pool || pool == t->pool)
        return true;
    ga_cuda_pool_untake(t);
    ga_cuda_pool_release(t->root, t->pool);
    t->pool = pool;
    return ga_cuda_pool_take(t, GA_CUDA_TAKE_NOW);
}

// Has the driver take back a block that is taken and held, with what the pool grew by for it.
// False: it cannot.
static bool give_up(struct claim *c, ga_address address) {
    struct ga_entry entry;
    if (!ga_cuda_pool_withdraw(c->take.root, address, &entry))
        return false;
    if (!free_now(address)) {
        ga_cuda_pool_put_back(c->take.root, &entry);
        return false;
    }
    ga_cuda_pool_freed(c->take.root, &entry, false);
    ga_cuda_pool_shed(c->take.root, c->take.pool);
    return true;
}

static enum outcome settle_taken(struct claim *c, ga_address address) {
    struct ga_cuda_take *t = &c->take;
    if (GA_UNLIKELY(!follow(c, address))) {
        if (!free_now(address))
            return DONE;
        ga_cuda_pool_shed(t->root, t->pool);
        return AGAIN;
    }
    if (GA_UNLIKELY(!ga_cuda_pool_hold(t, address, t->bytes))) {
        if (!free_now(address))
            return DONE;
        ga_cuda_pool_untake(t);
        return REFUSED;
    }
    if (GA_LIKELY(ga_cuda_pool_taken(t)))
        return DONE;
    return give_up(c, address) ? AGAIN : DONE;
}

static enum outcome settle(struct claim *c, ga_result *result, const ga_address *address) {
    ga_address at = *result == GA_CUDA_SUCCESS ? *address : 0;
    void *in_host = (void *)(uintptr_t)at;
    if (!c->take.root) {
        *result = ga_cuda_host_settle(&c->host, *result, &in_host, GA_CUDA_HOST_POOLED);
        return DONE;
    }
    enum outcome outcome = DONE;
    if (*result == GA_CUDA_SUCCESS)
        outcome = settle_taken(c, at);
    else
        ga_cuda_pool_untake(&c->take);
    ga_cuda_pool_release(c->take.root, c->take.pool);
    return outcome;
}

// An allocation that the driver took too much for is asked for once more, as new memory in full;
// the program waits for that, if it may, while the driver holds nothing for it.
#define ALLOCATES(real, named, pool, effective, address, bytes, ...)                               \
    ({                                                                                             \
        ga_result result = GA_CUDA_OUT_OF_MEMORY;                                                  \
        enum outcome outcome = AGAIN;                                                              \
        for (int tries = 0; tries < 2 && outcome == AGAIN; tries++) {                              \
            struct claim c;                                                                        \
            enum ga_cuda_take_how how = tries ? GA_CUDA_TAKE_NEW : GA_CUDA_TAKE;                   \
            if (!open_claim(&c, bytes, named, pool, effective, how))                               \
                return GA_CUDA_OUT_OF_MEMORY;                                                      \
            result = real(address, bytes, __VA_ARGS__);                                            \
            outcome = settle(&c, &result, address);                                                \
        }                                                                                          \
        outcome == DONE ? result : GA_CUDA_OUT_OF_MEMORY;                                          \
    })

ga_result ga_cuda_alloc_async(GA_FN_cuMemAllocAsync *real, ga_stream effective, ga_address *address,
                              size_t bytes, ga_stream stream) {
    return ALLOCATES(real, false, NULL, effective, address, bytes, stream);
}

ga_result ga_cuda_alloc_from_pool(GA_FN_cuMemAllocFromPoolAsync *real, ga_stream effective,
                                  ga_address *address, size_t bytes, ga_pool pool,
                                  ga_stream stream) {
    return ALLOCATES(real, true, pool, effective, address, bytes, pool, stream);
}

ga_result ga_cuda_free_async(GA_FN_cuMemFreeAsync *real, ga_stream effective, ga_address address,
                             ga_stream stream) {
    struct ga_claim c = {.root = ga_root_get()};
    // Captured, it frees when the graph runs: the block stays, and its charge.
    if (!c.root || ga_cuda_capturing(effective))
        return real(address, stream);
    struct ga_cuda_at at = ga_cuda_pending_at(c.root, effective);
    bool pooled = ga_cuda_pool_withdraw(c.root, address, &c.entry);
    enum ga_cuda_freed what = pooled ? GA_CUDA_FREED_POOLED : ga_cuda_memory_give(&c, address);
    ga_result result = real(address, stream);
    if (result == GA_CUDA_SUCCESS && what == GA_CUDA_FREED_POOLED)
        ga_cuda_pending_add(c.root, &c.entry, &at);
    else if (result == GA_CUDA_SUCCESS && what == GA_CUDA_FREED_BLOCK)
        ga_cuda_pending_add_plain(c.root, &c.entry, &at);
    else
        return ga_cuda_memory_given(&c, what, result);
    return result;
}
