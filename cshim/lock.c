// SPDX-License-Identifier: Apache-2.0
#include "lock.h"

// No wait is longer than this in one piece: a wake that is lost delays, and hangs nothing.
#define SLICE_MS 1000

void ga_spin_wait(struct ga_spin *lock) {
    for (unsigned spins = 0;; spins++) {
        uint32_t free = 0;
        if (atomic_load_explicit(&lock->held, memory_order_relaxed) == 0 &&
            atomic_compare_exchange_weak_explicit(&lock->held, &free, 1, memory_order_acquire,
                                                  memory_order_relaxed))
            return;
        // The holder may have been preempted, and may have a lower priority.
        if (spins >= 200)
            ga_os_sleep_us(20);
        else
            ga_os_relax();
    }
}

bool ga_mutex_lock(struct ga_mutex *m, int timeout_ms) {
    uint32_t seen = 0;
    if (atomic_compare_exchange_strong_explicit(&m->state, &seen, 1, memory_order_acquire,
                                                memory_order_relaxed))
        return true;
    uint64_t end = timeout_ms < 0 ? 0 : ga_os_now_ms() + (uint64_t)timeout_ms;
    while (atomic_exchange_explicit(&m->state, 2, memory_order_acquire) != 0) {
        int left = SLICE_MS;
        if (timeout_ms >= 0) {
            uint64_t now = ga_os_now_ms();
            if (now >= end)
                return false;
            left = end - now < SLICE_MS ? (int)(end - now) : SLICE_MS;
        }
        ga_os_wait(&m->state, 2, left);
    }
    return true;
}

void ga_mutex_unlock(struct ga_mutex *m) {
    if (atomic_exchange_explicit(&m->state, 0, memory_order_release) == 2)
        ga_os_wake(&m->state, 1);
}
