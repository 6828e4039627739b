// SPDX-License-Identifier: Apache-2.0
// The count of a lease's streams, while the daemon lends it to this process. Its layout is that of
// LeaseSlot in wire.h.
//
// Only how many there are changes here, and only while OPEN is set: the daemon, which takes the
// count back by a swap of its own, has each stream in it that was taken before, and is told of each
// that is given back after.
#ifndef GA_STREAMS_H
#define GA_STREAMS_H

#include "core/credit.h"

static inline ga_word *ga_streams_word(struct ga_wire_lease_slot *slot) {
    return (ga_word *)&slot->streams;
}

static inline uint64_t ga_streams_max(uint64_t word) {
    return word >> GA_STREAMS_MAX_SHIFT & GA_STREAMS_MASK;
}

// Counts one more. False: the daemon has the count, or there is no room.
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

// Counts so many less. False: the daemon has the count, and is to be told.
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
