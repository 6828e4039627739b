// SPDX-License-Identifier: Apache-2.0
// Two locks for memory that may be wiped by fork: all zero is "free", and
// releasing a free one does no harm.
//
// ga_spin guards some tens of nanoseconds of memory operations: no system call,
// no driver call inside. Its release is a plain store; a waiter that does not get
// it soon sleeps in steps instead of burning the holder's processor. Its holder's signal
// handlers do not want it.
// ga_mutex may be held across system calls, never across a wait for admission, and across
// a driver call only where the wait for it has an end and its holder can come again. It says which
// thread holds it: if that thread has ended, in a driver's call say, the next one gets it.
#ifndef GA_LOCK_H
#define GA_LOCK_H

#include "core/os.h"

// The calling thread's id; 0: it was not asked for yet. A forked child has its parent's until it
// is asked for anew (ga_lock_know_self).
extern __thread uint32_t ga_lock_thread __attribute__((tls_model("initial-exec")));
uint32_t ga_lock_know_self(void);
static inline uint32_t ga_lock_self(void) {
    uint32_t self = ga_lock_thread;
    return GA_LIKELY(self != 0) ? self : ga_lock_know_self();
}

struct ga_spin {
    _Atomic uint32_t held; // 0: free
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
    _Atomic uint32_t state; // 0 free, else the thread that holds it, with a bit when somebody waits
};

// False when it could not be had within timeout_ms (−1: waits for ever), and at once where the
// thread has it already.
bool ga_mutex_lock(struct ga_mutex *m, int timeout_ms);
bool ga_mutex_is_mine(const struct ga_mutex *m);
void ga_mutex_unlock(struct ga_mutex *m);

#endif
