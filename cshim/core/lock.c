// SPDX-License-Identifier: Apache-2.0
// The waits of both locks, and the detection of dead holders.
#include "core/lock.h"

// Longest wait in one system call. So a lost wake-up delays a thread, but cannot hang it, and a
// dead holder is noticed.
#define SLICE_MS 250

__thread uint32_t ga_lock_thread __attribute__((tls_model("initial-exec")));

uint32_t ga_lock_read_self(void) {
    ga_lock_thread = (uint32_t)ga_os_tid();
    return ga_lock_thread;
}

static bool is_dead(uint32_t thread) {
    return !ga_os_thread_lives(ga_os_pid(), (int)thread);
}

#define SPINS 200

void ga_spin_wait(struct ga_spin *lock) {
    for (unsigned spins = 0;; spins++) {
        uint32_t free = 0;
        if (atomic_load_explicit(&lock->held, memory_order_relaxed) == 0 &&
            atomic_compare_exchange_weak_explicit(&lock->held, &free, 1, memory_order_acquire,
                                                  memory_order_relaxed))
            return;
        // The holder may have been preempted, and may have a lower priority.
        if (spins >= SPINS)
            ga_os_sleep_us(20);
        else
            ga_os_relax();
    }
}

#define WAITED 0x80000000u

bool ga_mutex_lock(struct ga_mutex *m, int timeout_ms) {
    uint32_t seen = 0;
    uint32_t self = ga_lock_self();
    if (atomic_compare_exchange_strong_explicit(&m->state, &seen, self, memory_order_acquire,
                                                memory_order_relaxed))
        return true;
    uint64_t end = timeout_ms < 0 ? UINT64_MAX : ga_os_now_ms() + (uint64_t)timeout_ms;
    for (;;) {
        seen = atomic_load_explicit(&m->state, memory_order_relaxed);
        uint32_t holder = seen & ~WAITED;
        if (holder == 0 || (holder != self && is_dead(holder))) {
            if (atomic_compare_exchange_strong(&m->state, &seen, self | WAITED))
                return true;
            continue;
        }
        uint64_t now = ga_os_now_ms();
        if (holder == self || now >= end)
            return false;
        if (!(seen & WAITED) && !atomic_compare_exchange_strong(&m->state, &seen, seen | WAITED))
            continue;
        ga_os_wait(&m->state, holder | WAITED, end - now < SLICE_MS ? (int)(end - now) : SLICE_MS);
    }
}

bool ga_mutex_is_mine(const struct ga_mutex *m) {
    return (atomic_load(&m->state) & ~WAITED) == ga_lock_self();
}

void ga_mutex_unlock(struct ga_mutex *m) {
    if (atomic_exchange_explicit(&m->state, 0, memory_order_release) & WAITED)
        ga_os_wake(&m->state, 1);
}
