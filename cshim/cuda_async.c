// SPDX-License-Identifier: Apache-2.0
#include "cuda_async.h"

#include "admit.h"
#include "cuda_capture.h"
#include "cuda_device.h"
#include "cuda_pending.h"
#include "cuda_pool.h"

// One allocation on its way: drawn, then the driver, then settled. Its bytes come from three
// places: a block of the same size that was freed on the same stream, which the driver uses again
// at once; what the pool keeps; and the budget.
struct draw {
    struct ga_root *root;
    struct ga_cuda_pool *pool;
    ga_stream stream;
    uint64_t bytes;
    uint64_t kept; // of them were charged to the pool before
    uint32_t device;
    uint16_t tag;
    bool again; // all of them, and were pending
};

static struct ga_entry entry_of(const struct draw *d, ga_address address) {
    return (struct ga_entry){
        .key = address,
        .bytes = d->bytes,
        .context = (uint64_t)(uintptr_t)d->pool, // a pool's memory outlives contexts
        .tag = d->tag,
        .device = (uint8_t)d->device,
        .kind = GA_MEMORY_ASYNC,
    };
}

static bool draw_again(struct draw *d) {
    d->tag = atomic_load(&d->root->tag);
    struct ga_entry like = entry_of(d, 0);
    d->again = ga_cuda_pending_again(d->root, &like, d->stream);
    d->kept = d->again ? d->bytes : 0;
    return d->again;
}

static void put_kept_back(struct draw *d) {
    if (d->kept)
        ga_cuda_pool_keep(d->root, d->pool, d->kept, d->tag);
    d->kept = 0;
}

// Takes what the pool keeps, beyond what was taken before. Returns how much is missing still.
static uint64_t draw_kept(struct draw *d) {
    uint16_t tag = d->tag;
    uint64_t more = ga_cuda_pool_take(d->root, d->pool, d->bytes - d->kept, &tag);
    if (tag != d->tag) // of another session: what came before is nobody's
        put_kept_back(d);
    d->tag = tag;
    d->kept += more;
    return d->bytes - d->kept;
}

static void undo(struct draw *d) {
    struct ga_entry entry = entry_of(d, 0);
    if (d->again) {
        ga_cuda_pool_blocks(d->root, d->pool, 1);
        ga_cuda_pending_add(d->root, &entry, d->stream);
        return;
    }
    uint64_t rest = d->bytes - d->kept;
    put_kept_back(d);
    if (rest)
        ga_release(d->root, d->device, rest, d->tag);
}

// Frees that are about to execute are looked for a few times, which takes no longer than to ask.
#define LOOKS 32

static bool worth_a_look(const struct draw *d, uint64_t rest, int looks) {
    return looks < LOOKS && rest <= ga_admit_late(d->root, d->device) &&
           !ga_admit_exceeds(d->root, d->device, d->bytes);
}

static bool admit_rest(struct draw *d, uint64_t rest, int looks, uint16_t *tag) {
    return ga_admit_fast(d->root, d->device, rest, tag) ||
           (!worth_a_look(d, rest, looks) &&
            ga_admit_slow(d->root, d->device, rest, GA_MEMORY_ASYNC, tag));
}

// False: refused, and nothing is taken.
static bool draw(struct draw *d) {
    if (draw_again(d))
        return true;
    for (int looks = 0;; looks++) {
        uint64_t rest = draw_kept(d);
        uint16_t tag = d->tag;
        if (rest == 0)
            return true;
        if (admit_rest(d, rest, looks, &tag)) {
            if (d->kept == 0)
                d->tag = tag;
            if (d->tag == tag)
                return true;
            ga_release(d->root, d->device, rest, tag); // it began anew in between
            put_kept_back(d);
            looks = 0;
        } else if (!worth_a_look(d, rest, looks)) {
            put_kept_back(d);
            return false;
        }
        if (looks > 0)
            ga_os_yield();
        ga_admit_reap(d->root, d->device, 0);
    }
}

static ga_result settle(struct draw *d, ga_result result, ga_address address) {
    if (result != GA_CUDA_SUCCESS) {
        undo(d);
        return result;
    }
    struct ga_entry entry = entry_of(d, address);
    // Without memory to remember it by: better no block than one that nobody can account for.
    if (GA_UNLIKELY(!ga_hold(d->root, &entry))) {
        if (GA_REAL(cuMemFree_v2)(address) != GA_CUDA_SUCCESS)
            return result;
        undo(d);
        return GA_CUDA_OUT_OF_MEMORY;
    }
    ga_cuda_pool_grew(d->root, d->pool, d->bytes - d->kept, d->tag);
    return result;
}

enum opened { PASS, REFUSED, DRAWN };

// handle NULL: the pool that the device of the stream takes from at present.
static enum opened open_draw(struct draw *d, uint64_t bytes, bool named, ga_pool handle,
                             ga_stream stream) {
    uint64_t context;
    *d = (struct draw){.root = ga_root_get(), .bytes = bytes, .stream = stream};
    if (!d->root || bytes == 0 || ga_cuda_capturing(stream))
        return PASS;
    int device = ga_cuda_device_of_stream(d->root, stream, &context);
    if (device < 0)
        return PASS;
    d->pool = named ? ga_cuda_pool_named(d->root, handle, device)
                    : ga_cuda_pool_current(d->root, (uint32_t)device);
    if (!d->pool)
        return REFUSED; // no memory to account for it
    if (ga_cuda_pool_device(d->pool) < 0)
        return PASS;
    d->device = (uint32_t)ga_cuda_pool_device(d->pool);
    return draw(d) ? DRAWN : REFUSED;
}

ga_result ga_cuda_alloc_async(GA_FN_cuMemAllocAsync *real, ga_address *address, size_t bytes,
                              ga_stream stream, ga_stream effective) {
    struct draw d;
    enum opened opened = open_draw(&d, bytes, false, NULL, effective);
    if (opened == REFUSED)
        return GA_CUDA_OUT_OF_MEMORY;
    ga_result result = real(address, bytes, stream);
    if (opened == PASS)
        return result;
    return settle(&d, result, result == GA_CUDA_SUCCESS ? *address : 0);
}

ga_result ga_cuda_alloc_from_pool(GA_FN_cuMemAllocFromPoolAsync *real, ga_address *address,
                                  size_t bytes, ga_pool pool, ga_stream stream,
                                  ga_stream effective) {
    struct draw d;
    enum opened opened = open_draw(&d, bytes, true, pool, effective);
    if (opened == REFUSED)
        return GA_CUDA_OUT_OF_MEMORY;
    ga_result result = real(address, bytes, pool, stream);
    if (opened == PASS)
        return result;
    return settle(&d, result, result == GA_CUDA_SUCCESS ? *address : 0);
}

ga_result ga_cuda_free_async(GA_FN_cuMemFreeAsync *real, ga_address address, ga_stream stream,
                             ga_stream effective) {
    struct ga_entry entry;
    struct ga_root *root = ga_root_get();
    // Captured, it frees when the graph runs: the block stays, and its charge.
    if (!root || ga_cuda_capturing(effective) || !ga_withdraw(root, address, &entry))
        return real(address, stream);
    ga_result result = real(address, stream);
    if (result != GA_CUDA_SUCCESS) {
        ga_hold(root, &entry);
        return result;
    }
    ga_cuda_pending_add(root, &entry, effective);
    return result;
}

ga_result ga_cuda_synchronized(ga_result result) {
    struct ga_root *root = result == GA_CUDA_SUCCESS ? ga_root_get() : NULL;
    uint32_t devices = root ? atomic_load(&root->device_count) : 0;
    for (uint32_t device = 0; device < devices && device < GA_DEVICES; device++)
        ga_admit_reap(root, device, 0);
    return result;
}
