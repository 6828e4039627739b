// SPDX-License-Identifier: Apache-2.0
// Two locks for memory that may be wiped by fork: all zero is "free", and
// releasing a free one does no harm.
//
// ga_spin guards some tens of nanoseconds of memory operations: no system call,
// no driver call inside. Its release is a plain store; a waiter that does not get
// it soon sleeps in steps instead of burning the holder's processor.
// ga_mutex may be held across system calls, never across a wait for admission, and across
// a driver call only where the wait for it has an end and its holder can come again.
#ifndef GA_LOCK_H
#define GA_LOCK_H

#include "os.h"

struct ga_spin {
    _Atomic uint32_t held;
};

void ga_spin_wait(struct ga_spin *lock);

static inline void ga_spin_lock(struct ga_spin *lock) {
    uint32_t free = 0;
    if (GA_UNLIKELY(!atomic_compare_exchange_strong_explicit(
            &lock->held, &free, 1, memory_order_acquire, memory_order_relaxed)))
        ga_spin_wait(lock);
}

static inline void ga_spin_unlock(struct ga_spin *lock) {
    atomic_store_explicit(&lock->held, 0, memory_order_release);
}

struct ga_mutex {
    _Atomic uint32_t state; // 0 free, 1 held, 2 held and somebody waits
};

// False when it could not be had within timeout_ms (−1: waits for ever).
bool ga_mutex_lock(struct ga_mutex *m, int timeout_ms);
void ga_mutex_unlock(struct ga_mutex *m);

#endif
