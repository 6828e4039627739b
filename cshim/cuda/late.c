// SPDX-License-Identifier: Apache-2.0
#include "cuda/late.h"

#include "cuda/state.h"

_Atomic(ga_cuda_late_sweep *) ga_cuda_late_sweeps;

// The entries of a context are marked with a ticket before the driver is called, not looked for
// afterwards: by then its addresses, and its handle, may be somebody else's. A ticket is odd, so
// that it is no address.
uint64_t ga_cuda_late_ticket(void) {
    static _Atomic uint64_t tickets;
    return atomic_fetch_add(&tickets, 2) + 1;
}

static void record(struct ga_root *root, const struct ga_ending *e, bool ended) {
    struct ga_late *l = &ga_cuda(root)->late;
    uint64_t epoch = atomic_fetch_add(&ga_cuda(root)->context_epoch, 1) + 1;
    l->ended[l->count++ % GA_ENDED] = (struct ga_ended){e->context, e->ticket, epoch, ended};
}

// Where all places are taken the end goes on without: what comes late then stays counted.
void ga_cuda_late_begin(struct ga_root *root, uint64_t context, uint64_t ticket) {
    struct ga_late *l = &ga_cuda(root)->late;
    atomic_fetch_add(&ga_cuda(root)->contexts_ending, 1);
    ga_self_lock(&l->lock);
    for (size_t i = 0; i < GA_ENDINGS; i++) {
        if (l->ending[i].ticket == 0) {
            l->ending[i] = (struct ga_ending){context, ticket};
            break;
        }
    }
    ga_self_unlock(&l->lock);
}

void ga_cuda_late_end(struct ga_root *root, uint64_t ticket, bool ended) {
    struct ga_late *l = &ga_cuda(root)->late;
    ga_self_lock(&l->lock);
    for (size_t i = 0; i < GA_ENDINGS; i++) {
        struct ga_ending *e = &l->ending[i];
        if (e->ticket != ticket)
            continue;
        if (e->context)
            record(root, e, ended);
        *e = (struct ga_ending){0, 0};
    }
    ga_self_unlock(&l->lock);
    atomic_fetch_sub(&ga_cuda(root)->contexts_ending, 1);
}

void ga_cuda_late_made(struct ga_root *root, uint64_t context) {
    struct ga_late *l = &ga_cuda(root)->late;
    if (GA_LIKELY(atomic_load(&ga_cuda(root)->contexts_ending) == 0))
        return;
    ga_self_lock(&l->lock);
    for (size_t i = 0; i < GA_ENDINGS; i++) {
        struct ga_ending *e = &l->ending[i];
        if (e->ticket == 0 || e->context != context)
            continue;
        record(root, e, true);
        e->context = 0;
    }
    ga_self_unlock(&l->lock);
}

// What is to become of an entry: it stays, joins the end of a ticket, is swept by itself, or gets
// the context back that was not ended after all.
struct fate {
    uint64_t becomes; // its context from now on; 0: it stays
    bool sweep;
};

// The entry has a ticket: it was out of the table, for a free that failed, as the others were swept
// or got their context back.
static struct fate of_ticket(const struct ga_late *l, uint64_t ticket) {
    for (size_t i = 0; i < GA_ENDED; i++) {
        const struct ga_ended *e = &l->ended[i];
        if (e->ticket == ticket)
            return (struct fate){e->ended ? ticket : e->context, e->ended};
    }
    return (struct fate){0, false};
}

static bool ended_since(const struct ga_late *l, uint64_t context, uint64_t epoch) {
    for (size_t i = 0; i < GA_ENDED; i++) {
        const struct ga_ended *e = &l->ended[i];
        if (e->ended && e->context == context && e->epoch > epoch)
            return true;
    }
    return false;
}

bool ga_cuda_late_ended(struct ga_root *root, uint64_t context, uint64_t epoch) {
    struct ga_late *l = &ga_cuda(root)->late;
    ga_self_lock(&l->lock);
    bool ended = ended_since(l, context, epoch);
    ga_self_unlock(&l->lock);
    return ended;
}

static struct fate of_context(const struct ga_late *l, uint64_t context, uint64_t epoch) {
    for (size_t i = 0; i < GA_ENDINGS; i++)
        if (l->ending[i].ticket && l->ending[i].context == context)
            return (struct fate){l->ending[i].ticket, false};
    return ended_since(l, context, epoch) ? (struct fate){ga_cuda_late_ticket(), true}
                                          : (struct fate){0, false};
}

static struct fate fate_of(const struct ga_late *l, uint64_t context, uint64_t epoch) {
    return context & 1 ? of_ticket(l, context) : of_context(l, context, epoch);
}

uint64_t ga_cuda_late_turn(struct ga_root *root, uint64_t *context, uint64_t epoch) {
    struct ga_late *l = &ga_cuda(root)->late;
    if (*context == 0 || !ga_cuda_late_any(root, epoch))
        return 0;
    ga_spin_lock(&l->lock);
    struct fate f = fate_of(l, *context, epoch);
    ga_spin_unlock(&l->lock);
    *context = f.becomes ? f.becomes : *context;
    return f.sweep ? f.becomes : 0;
}

void ga_cuda_late_join(struct ga_root *root, struct ga_table *table, const struct ga_entry *entry,
                       uint64_t epoch) {
    struct ga_late *l = &ga_cuda(root)->late;
    if (entry->context == 0)
        return;
    ga_self_lock(&l->lock);
    struct fate f = fate_of(l, entry->context, epoch);
    // Under the lock: the end that it joins has not swept yet.
    ga_cuda_late_sweep *sweep = atomic_load(&ga_cuda_late_sweeps);
    bool moved = f.becomes && ga_table_move(table, entry, f.becomes);
    ga_self_unlock(&l->lock);
    if (moved && f.sweep)
        sweep(root, f.becomes);
}
