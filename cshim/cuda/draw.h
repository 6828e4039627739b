// SPDX-License-Identifier: Apache-2.0
// Bytes for memory of a pool: a block that its user freed there, or else from the budget.
#ifndef GA_CUDA_DRAW_H
#define GA_CUDA_DRAW_H

#include "cuda/pool.h"

struct ga_cuda_draw {
    struct ga_root *root;
    struct ga_cuda_pool *pool;
    struct ga_cuda_pool_user user; // 0: nobody
    uint64_t bytes;
    uint64_t admitted; // all of them, or 0: the pool was charged with them before
    uint32_t device;
    uint32_t kind;
    uint16_t tag;
};

// Root, pool, user, bytes and kind are given. False: refused, and nothing is taken. True: they are
// on their way.
bool ga_cuda_draw(struct ga_cuda_draw *draw);
// The driver did not take them.
void ga_cuda_draw_undo(struct ga_cuda_draw *draw);

#endif
