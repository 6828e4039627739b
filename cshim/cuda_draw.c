// SPDX-License-Identifier: Apache-2.0
#include "cuda_draw.h"

#include "admit.h"
#include "cuda_pool.h"

static void put_kept_back(struct ga_cuda_draw *d) {
    if (d->kept)
        ga_cuda_pool_keep(d->root, d->pool, d->kept, d->tag);
    d->kept = 0;
}

// Takes what the pool keeps, beyond what was taken before. Returns how much is missing still.
static uint64_t draw_kept(struct ga_cuda_draw *d) {
    uint16_t tag = d->tag;
    uint64_t more = ga_cuda_pool_take(d->root, d->pool, d->bytes - d->kept, &tag);
    if (tag != d->tag) // of another session: what came before is nobody's
        put_kept_back(d);
    d->tag = tag;
    d->kept += more;
    return d->bytes - d->kept;
}

// Frees that are about to execute are looked for a few times, which takes no longer than to ask.
#define LOOKS 32

static bool worth_a_look(const struct ga_cuda_draw *d, uint64_t rest, int looks) {
    return looks < LOOKS && rest <= ga_admit_late(d->root, d->device) &&
           !ga_admit_exceeds(d->root, d->device, d->bytes);
}

static bool admit_rest(struct ga_cuda_draw *d, uint64_t rest, bool ask, uint16_t *tag) {
    return ga_admit_fast(d->root, d->device, rest, tag) ||
           (ask && ga_admit_slow(d->root, d->device, rest, d->kind, tag));
}

bool ga_cuda_draw(struct ga_cuda_draw *d) {
    d->device = (uint32_t)ga_cuda_pool_device(d->pool);
    d->kept = 0;
    d->tag = atomic_load(&d->root->tag);
    for (int looks = 0;; looks++) {
        uint64_t rest = draw_kept(d);
        uint16_t tag = d->tag;
        if (rest == 0)
            return true;
        bool ask = !worth_a_look(d, rest, looks);
        if (admit_rest(d, rest, ask, &tag)) {
            if (d->kept == 0)
                d->tag = tag;
            if (d->tag == tag)
                return true;
            ga_release(d->root, d->device, rest, tag); // it began anew in between
            put_kept_back(d);
            looks = 0;
        } else if (ask) {
            // What came to the pool meanwhile may do.
            if (draw_kept(d) == 0)
                return true;
            put_kept_back(d);
            return false;
        }
        if (looks > 0)
            ga_os_yield();
        ga_admit_reap(d->root, d->device, 0);
    }
}

void ga_cuda_draw_undo(struct ga_cuda_draw *d) {
    uint64_t rest = d->bytes - d->kept;
    put_kept_back(d);
    if (rest)
        ga_release(d->root, d->device, rest, d->tag);
}
