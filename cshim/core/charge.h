// SPDX-License-Identifier: Apache-2.0
// Bytes in use that a record holds: those of an object whose driver hands an argument of ours back
// when it ends, so that nothing has to be looked up by an address or handle. They count as the
// blocks of the table do.
//
// A thread keeps the record that it gave back last, so that to make an object and to end it, in
// turns, takes no lock. One that is over leaves it to the next thread that has its ga_thread. Since
// these count for what is told (tell.h), no more than the first records of threads have one.
#ifndef GA_CHARGE_H
#define GA_CHARGE_H

#include "core/root.h"

// The first member of what an interface keeps of one. A record is used again, and stays as it was
// left.
struct ga_charge {
    void *next;             // its holder's; where it is unused the next that is
    _Atomic uint64_t bytes; // 0: it holds nothing
    _Atomic uint16_t tag;   // as of ga_entry
    _Atomic uint8_t device;
    uint8_t kind;
};
#define GA_CHARGE_SIZE 64 // with what the interface keeps
#define GA_CHARGE_SPARES ((size_t)32)

// A record that no thread has. NULL: there is no memory.
struct ga_charge *ga_charge_fetch(struct ga_root *root);
// The reverse; inside a move.
void ga_charge_return(struct ga_root *root, struct ga_charge *charge);

// Makes root->charges.most what there is now; in brackets of ga_self_enter.
void ga_charge_recount(struct ga_root *root);
// Shows every one that holds something.
void ga_charge_each(struct ga_root *root, void (*show)(void *arg, const struct ga_entry *entry),
                    void *arg);

static inline bool ga_charge_may_spare(const struct ga_root *root, const struct ga_thread *t) {
    return (uintptr_t)t - (uintptr_t)root->threads < GA_CHARGE_SPARES * sizeof *t;
}

// The record is nobody's. Inside a move.
static inline void ga_charge_spare(struct ga_root *root, struct ga_charge *charge) {
    struct ga_thread *t = ga_self.thread;
    if (GA_LIKELY(t != NULL && t->spare == NULL && ga_charge_may_spare(root, t)))
        t->spare = charge;
    else
        ga_charge_return(root, charge);
}

// What it holds, and it holds that no more; inside a move.
static inline struct ga_entry ga_charge_empty(struct ga_charge *charge) {
    struct ga_entry entry = {
        .bytes = atomic_load_explicit(&charge->bytes, memory_order_relaxed),
        .tag = atomic_load_explicit(&charge->tag, memory_order_relaxed),
        .device = atomic_load_explicit(&charge->device, memory_order_relaxed),
        .kind = charge->kind,
    };
    atomic_store_explicit(&charge->bytes, 0, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    return entry;
}

#endif
