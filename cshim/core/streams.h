// SPDX-License-Identifier: Apache-2.0
// The stream count of a lease, while the daemon lends the count to this process. Its layout is that
// of LeaseSlot in wire.h. admit.c uses it; objects.c counts streams that are not lent.
//
// This process changes only the number, and only while OPEN is set. The daemon takes the count back
// by an atomic swap. So the daemon's copy contains every stream created before; later ones are
// reported to it.
#ifndef GA_STREAMS_H
#define GA_STREAMS_H

#include "core/credit.h"

static inline ga_word *ga_streams_word(struct ga_wire_lease_slot *slot) {
    return (ga_word *)&slot->streams;
}

static inline uint64_t ga_streams_max(uint64_t word) {
    return word >> GA_STREAMS_MAX_SHIFT & GA_STREAMS_MASK;
}

// Adds a stream. False: the daemon keeps the count, or it is at its maximum.
static inline bool ga_streams_acquire(struct ga_wire_lease_slot *slot) {
    ga_word *word = ga_streams_word(slot);
    uint64_t seen = atomic_load_explicit(word, memory_order_relaxed);
    do {
        if (!(seen & GA_STREAMS_OPEN) || (seen & GA_STREAMS_MASK) >= ga_streams_max(seen))
            return false;
    } while (!atomic_compare_exchange_weak_explicit(word, &seen, seen + 1, memory_order_acq_rel,
                                                    memory_order_relaxed));
    return true;
}

// Subtracts streams. False: the daemon keeps the count, and must be told.
static inline bool ga_streams_release(struct ga_wire_lease_slot *slot, uint32_t count) {
    ga_word *word = ga_streams_word(slot);
    uint64_t seen = atomic_load_explicit(word, memory_order_relaxed);
    do {
        if (!(seen & GA_STREAMS_OPEN) || (seen & GA_STREAMS_MASK) < count)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(word, &seen, seen - count, memory_order_acq_rel,
                                                    memory_order_relaxed));
    return true;
}

#endif
