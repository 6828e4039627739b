// SPDX-License-Identifier: Apache-2.0
//
// Loans: memory that other processes have imported. It is given back when its owner and all
// importers have released it. If the owner is first, by a free or by its death, the bytes move to
// the record of one importer, beside its own program's bytes. How a real driver divides them among
// processes is not documented.

#include "sim.h"

static struct sim_loan *next_of(struct sim_state *s, struct sim_loan *from, uint64_t owner,
                                uint64_t object) {
    struct sim_loan *end = s->loan + s->loan_high;
    for (struct sim_loan *l = from ? from + 1 : s->loan; l < end; l++)
        if (l->owner == owner && (l->object == object || object == SIM_ANY_OBJECT))
            return l;
    return NULL;
}

// Moves the bytes to the borrower's record.
static void carry_locked(struct sim_state *s, struct sim_loan *l) {
    struct sim_usage *u = &s->proc[l->borrower].dev[l->dev];
    l->carried = 1;
    atomic_store(&u->extra, atomic_load(&u->extra) + l->bytes);
    s->dev[l->dev].used += l->bytes;
}

static bool carried_locked(struct sim_state *s, const struct sim_loan *like) {
    for (struct sim_loan *l = NULL; (l = next_of(s, l, like->owner, like->object));)
        if (l->carried)
            return true;
    return false;
}

static void drop_locked(struct sim_state *s, struct sim_loan *l, bool borrower_lives) {
    struct sim_loan was = *l;
    l->owner = 0;
    atomic_fetch_sub(&s->loans, 1);
    if (!was.carried)
        return;
    if (borrower_lives) {
        struct sim_usage *u = &s->proc[was.borrower].dev[was.dev];
        atomic_store(&u->extra, atomic_load(&u->extra) - was.bytes);
        s->dev[was.dev].used -= was.bytes;
    }
    struct sim_loan *other = next_of(s, NULL, was.owner, was.object);
    if (other)
        carry_locked(s, other);
}

bool sim_borrow(struct sim_state *s, struct sim_proc *p, const struct sim_loan *what) {
    sim_lock(s);
    struct sim_loan *l = s->loan;
    while (l < s->loan + SIM_MAX_LOANS && l->owner)
        l++;
    bool room = l < s->loan + SIM_MAX_LOANS;
    if (room) {
        *l = *what;
        l->borrower = (uint32_t)(p - s->proc);
        l->carried = 0;
        atomic_fetch_add(&s->loans, 1);
        if (l >= s->loan + s->loan_high)
            s->loan_high = (uint32_t)(l - s->loan) + 1;
    }
    sim_unlock(s);
    return room;
}

void sim_return(struct sim_state *s, struct sim_proc *p, uint64_t owner, uint64_t object) {
    sim_lock(s);
    struct sim_loan *l = next_of(s, NULL, owner, object);
    while (l && l->borrower != (uint32_t)(p - s->proc))
        l = next_of(s, l, owner, object);
    if (l)
        drop_locked(s, l, true);
    sim_unlock(s);
}

void sim_give_imported(struct sim_state *s, struct sim_proc *p, int dev, struct sim_delta d,
                       uint64_t object) {
    if (!atomic_load(&s->loans)) {
        sim_give(s, p, dev, d);
        return;
    }
    sim_lock(s);
    sim_give_locked(s, p, dev, d);
    struct sim_loan *l = next_of(s, NULL, p->serial, object);
    if (l)
        carry_locked(s, l);
    sim_unlock(s);
}

void sim_end_imports(struct sim_state *s, struct sim_proc *p, uint64_t object) {
    if (!atomic_load(&s->loans))
        return;
    sim_lock(s);
    for (struct sim_loan *l; (l = next_of(s, NULL, p->serial, object));)
        drop_locked(s, l, true);
    sim_unlock(s);
}

void sim_loans_end_locked(struct sim_state *s, struct sim_proc *p) {
    if (!atomic_load(&s->loans))
        return;
    for (struct sim_loan *l = s->loan; l < s->loan + s->loan_high; l++)
        if (l->owner && l->borrower == (uint32_t)(p - s->proc))
            drop_locked(s, l, false);
    for (struct sim_loan *l = NULL; (l = next_of(s, l, p->serial, SIM_ANY_OBJECT));)
        if (!carried_locked(s, l))
            carry_locked(s, l);
}
