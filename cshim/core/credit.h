// SPDX-License-Identifier: Apache-2.0
// The credit word of a lease: what may be taken without asking. Its layout is
// that of LeaseSlot in wire.h.
//
// Both directions change the credit bits alone, atomically, and leave the flags and
// the epoch as they are: a change of the daemon's between our load and our swap makes
// the swap fail.
#ifndef GA_CREDIT_H
#define GA_CREDIT_H

#include "core/os.h"
#include "core/wire.h"

typedef _Atomic uint64_t ga_word; // one that both sides of the page use

static inline ga_word *ga_credit_word(struct ga_wire_lease_slot *slot) {
    return (ga_word *)&slot->credit;
}

static inline ga_word *ga_credit_low(struct ga_wire_lease_slot *slot) {
    return (ga_word *)&slot->low;
}

// Records that the credit fell to what word says. Of another epoch it is not ours to touch:
// the daemon begins the word anew after each of its changes.
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

// Takes bytes. False: closed, or not enough; nothing changed. *seen is what the word is believed
// to be: right, it spares a load that the swap would have to wait for; wrong, it costs one more
// swap. It is left at what the word became.
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

// Gives bytes back, saturating; returns the word that was replaced. GA_FLAG_NOTIFY in it:
// somebody waits and wants to hear of it. Far from the limit, which is where every honest word
// is, an addition does it: nobody but the threads of this process adds.
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
