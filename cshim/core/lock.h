// SPDX-License-Identifier: Apache-2.0
// Two locks for memory that fork may wipe. All zero means free, and releasing a free lock is
// harmless.
//
// ga_spin guards some tens of nanoseconds of memory operations, without system calls or driver
// calls. Its release is a plain store. A waiter spins briefly, then sleeps in steps. A signal
// handler that interrupts the holder must not lock it (ga_self_enter).
// ga_mutex may be held across system calls, but never across a wait for admission. It may be held
// across a driver call only if other threads' waits for the mutex are bounded and its holder may
// lock it again later. Its state names the holder: if that thread has ended, for example inside a
// driver call, the next waiter gets the mutex.
#ifndef GA_LOCK_H
#define GA_LOCK_H

#include "core/os.h"

// ID of the calling thread; 0: not read yet. A forked child has its parent's value until
// ga_lock_read_self.
extern __thread uint32_t ga_lock_thread __attribute__((tls_model("initial-exec")));
// Reads the calling thread's ID from the kernel, and stores it.
uint32_t ga_lock_read_self(void);
static inline uint32_t ga_lock_self(void) {
    uint32_t self = ga_lock_thread;
    return GA_LIKELY(self != 0) ? self : ga_lock_read_self();
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
    // 0: free; else the ID of the holder, with the bit WAITED if threads wait
    _Atomic uint32_t state;
};

// Locks a mutex. False: not locked within timeout_ms (−1: no limit), or the calling thread holds it
// already.
bool ga_mutex_lock(struct ga_mutex *m, int timeout_ms);
bool ga_mutex_is_mine(const struct ga_mutex *m);
void ga_mutex_unlock(struct ga_mutex *m);

#endif
