// SPDX-License-Identifier: Apache-2.0
#include "cuda/draw.h"

#include "core/admit.h"
#include "cuda/pool.h"

// Frees that are about to execute are looked for a few times, which takes no longer than to ask.
#define LOOKS 32

static bool worth_a_look(const struct ga_cuda_draw *d, int looks) {
    return looks < LOOKS && d->bytes <= ga_admit_late(d->root, d->device) &&
           !ga_admit_exceeds(d->root, d->device, d->bytes);
}

// Where bytes last came of pools alone, these are asked before the daemon is.
static bool ask(struct ga_cuda_draw *d) {
    struct ga_root *root = d->root;
    if (ga_cuda_pool_is_strait(root, d->device) && !ga_admit_exceeds(root, d->device, d->bytes)) {
        ga_interface_reap(root, d->device, d->bytes);
        if (ga_admit_fast(root, d->device, d->bytes, &d->tag))
            return true;
    }
    uint64_t returned = atomic_load(&root->returned[d->device]);
    if (!ga_admit_slow(root, d->device, d->bytes, d->kind, &d->tag))
        return false;
    bool of_pools = atomic_load(&root->returned[d->device]) != returned;
    ga_cuda_pool_asked_for(root, d->device, of_pools);
    return true;
}

bool ga_cuda_draw(struct ga_cuda_draw *d) {
    d->device = (uint32_t)ga_cuda_pool_device(d->pool);
    d->admitted = 0;
    for (int looks = 0;; looks++) {
        if (d->user.id && ga_cuda_pool_ready(d->root, d->pool, &d->user, d->bytes, &d->tag))
            return true;
        bool last = !worth_a_look(d, looks);
        if (ga_admit_fast(d->root, d->device, d->bytes, &d->tag) || (last && ask(d))) {
            d->admitted = d->bytes;
            ga_cuda_pool_enter(d->root, d->pool, d->bytes);
            return true;
        }
        if (last)
            return false;
        if (looks > 0)
            ga_os_yield();
        ga_interface_reap(d->root, d->device, 0);
    }
}

void ga_cuda_draw_undo(struct ga_cuda_draw *d) {
    if (d->admitted == 0) {
        ga_cuda_pool_keep(d->root, d->pool, d->bytes, d->tag);
        return;
    }
    ga_cuda_pool_leave(d->root, d->pool, d->bytes);
    ga_release(d->root, d->device, d->bytes, d->tag);
}
