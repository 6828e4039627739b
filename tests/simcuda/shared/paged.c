// SPDX-License-Identifier: Apache-2.0
//
// Managed memory that moves (SIMCUDA_MANAGED_MOVES). A prefetch moves it to the device, as far as
// there is room. An allocation of any process that lacks room moves it away. Its bytes on the
// device are part of the process's extra.

#include "sim.h"

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

// Moves up to `in` bytes to the device and up to `out` bytes away. The lock is held.
static void change_locked(struct sim_state *s, struct sim_proc *p, int dev, uint64_t in,
                          uint64_t out) {
    struct sim_usage *u = &p->dev[dev];
    uint64_t paged = atomic_load(&u->paged), managed = atomic_load(&u->managed);
    uint64_t capacity = sim_capacity(s, dev), used = s->dev[dev].used;
    uint64_t room = used < capacity ? capacity - used : 0;
    if (sim_outlived(s, p, dev))
        return;
    in = least(least(in, managed > paged ? managed - paged : 0), room);
    out = least(out, paged);
    atomic_store(&u->paged, paged + in - out);
    sim_give_locked(s, p, dev, (struct sim_delta){.extra = (int64_t)(out - in)});
}

void sim_page(struct sim_state *s, struct sim_proc *p, int dev, uint64_t in, uint64_t out) {
    sim_lock(s);
    change_locked(s, p, dev, in, out);
    sim_unlock(s);
}

void sim_managed(struct sim_state *s, struct sim_proc *p, int dev, int64_t bytes) {
    sim_lock(s);
    struct sim_usage *u = &p->dev[dev];
    uint64_t managed = atomic_load(&u->managed) + (uint64_t)bytes, paged = atomic_load(&u->paged);
    atomic_store(&u->managed, managed);
    change_locked(s, p, dev, 0, paged > managed ? paged - managed : 0);
    sim_unlock(s);
}

void sim_evict_locked(struct sim_state *s, int dev, uint64_t bytes) {
    uint64_t capacity = sim_capacity(s, dev);
    for (uint32_t i = 0; i < atomic_load(&s->proc_high); i++) {
        uint64_t used = s->dev[dev].used, room = used < capacity ? capacity - used : 0;
        if (room >= bytes)
            return;
        if (atomic_load(&s->proc[i].state) == SIM_PROC_LIVE)
            change_locked(s, &s->proc[i], dev, 0, bytes - room);
    }
}
