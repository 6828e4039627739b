// SPDX-License-Identifier: Apache-2.0
// The credit word of a lease: bytes that the process may use without asking the daemon. Its layout
// is that of LeaseSlot in wire.h. admit.h acquires credit, release.h returns it.
//
// Acquire changes the credit bits by a compare-and-swap, and keeps the flags and the epoch. If the
// daemon changes the word between our load and our swap, the swap fails and is repeated. Release
// adds to the credit bits; only near GA_CREDIT_LIMIT it uses a compare-and-swap. No lock is needed.
#ifndef GA_CREDIT_H
#define GA_CREDIT_H

#include "core/os.h"
#include "core/wire.h"

typedef _Atomic uint64_t
    ga_word; // word of the lease page, written by both the daemon and this process

static inline ga_word *ga_credit_word(struct ga_wire_lease_slot *slot) {
    return (ga_word *)&slot->credit;
}

static inline ga_word *ga_credit_low(struct ga_wire_lease_slot *slot) {
    return (ga_word *)&slot->low;
}

// Lowers the recorded minimum of the credit to that of `word`. A minimum of another epoch stays,
// because the daemon resets it at each of its changes.
static inline void ga_credit_lower(struct ga_wire_lease_slot *slot, uint64_t word) {
    ga_word *low = ga_credit_low(slot);
    uint64_t least = word & ~(GA_FLAG_NOTIFY | GA_FLAG_CLOSED);
    uint64_t seen = atomic_load_explicit(low, memory_order_relaxed);
    while ((seen & GA_EPOCH_MASK) == (least & GA_EPOCH_MASK) &&
           (seen & GA_CREDIT_MASK) > (least & GA_CREDIT_MASK)) {
        if (atomic_compare_exchange_weak_explicit(low, &seen, least, memory_order_relaxed,
                                                  memory_order_relaxed))
            return;
    }
}

// Acquires bytes. False: the word is closed or has too little credit; nothing changed. *seen: the
// caller's guess of the word. A right guess saves a load that the swap would wait for; a wrong
// guess costs one more swap. *seen is set to the new value of the word.
static inline bool ga_credit_acquire_seen(struct ga_wire_lease_slot *slot, uint64_t bytes,
                                          uint64_t *seen) {
    ga_word *word = ga_credit_word(slot);
    bool fresh = false;
    for (;;) {
        if (GA_UNLIKELY((*seen & GA_FLAG_CLOSED) || (*seen & GA_CREDIT_MASK) < bytes)) {
            if (fresh)
                return false;
            *seen = atomic_load_explicit(word, memory_order_relaxed);
            fresh = true;
            continue;
        }
        if (GA_LIKELY(atomic_compare_exchange_weak_explicit(
                word, seen, *seen - bytes, memory_order_acq_rel, memory_order_relaxed)))
            break;
        fresh = true;
    }
    *seen -= bytes;
    ga_credit_lower(slot, *seen);
    return true;
}

static inline bool ga_credit_acquire(struct ga_wire_lease_slot *slot, uint64_t bytes) {
    uint64_t seen = atomic_load_explicit(ga_credit_word(slot), memory_order_relaxed);
    return ga_credit_acquire_seen(slot, bytes, &seen);
}

// Returns bytes to the credit, up to GA_CREDIT_LIMIT. Returns the previous value of the word; if it
// has GA_FLAG_NOTIFY, another job waits for bytes and the daemon must be told. Far below the limit,
// as a normal word is, a plain addition suffices. Other threads of this process and the daemon may
// add between our load and our addition. For a carry out of the credit bits they would have to add
// more than GA_CREDIT_LIMIT / 2, which no device has.
static inline uint64_t ga_credit_release(struct ga_wire_lease_slot *slot, uint64_t bytes) {
    ga_word *word = ga_credit_word(slot);
    uint64_t seen = atomic_load_explicit(word, memory_order_relaxed);
    if (GA_LIKELY((seen & GA_CREDIT_MASK) < GA_CREDIT_LIMIT / 4 && bytes < GA_CREDIT_LIMIT / 4))
        return atomic_fetch_add_explicit(word, bytes, memory_order_acq_rel);
    uint64_t next;
    do {
        uint64_t room = GA_CREDIT_LIMIT - (seen & GA_CREDIT_MASK);
        next = seen + (bytes < room ? bytes : room);
    } while (!atomic_compare_exchange_weak_explicit(word, &seen, next, memory_order_acq_rel,
                                                    memory_order_relaxed));
    return seen;
}

#endif
