// SPDX-License-Identifier: Apache-2.0
#include "core/lock.h"

// No wait is longer than this in one piece: a wake that is lost delays, and hangs nothing, and a
// holder that dies is noticed.
#define SLICE_MS 250

__thread uint32_t ga_lock_thread __attribute__((tls_model("initial-exec")));

uint32_t ga_lock_know_self(void) {
    ga_lock_thread = (uint32_t)ga_os_tid();
    return ga_lock_thread;
}

static bool is_dead(uint32_t thread) {
    return !ga_os_thread_lives(ga_os_pid(), (int)thread);
}

#define SPINS 200
#define SLEEPS_TO_A_LOOK 256

// Held by this very thread: it has left the section, by a jump out of a signal handler.
static bool take_over(struct ga_spin *lock) {
    uint32_t holder = atomic_load(&lock->held);
    return holder != 0 && (holder == ga_lock_self() || is_dead(holder)) &&
           atomic_compare_exchange_strong(&lock->held, &holder, ga_lock_self());
}

bool ga_spin_wait(struct ga_spin *lock) {
    for (unsigned spins = 0;; spins++) {
        uint32_t free = 0;
        if (atomic_load_explicit(&lock->held, memory_order_relaxed) == 0 &&
            atomic_compare_exchange_weak_explicit(&lock->held, &free, ga_lock_self(),
                                                  memory_order_acquire, memory_order_relaxed))
            return false;
        // The holder may have been preempted, and may have a lower priority.
        if (spins >= SPINS)
            ga_os_sleep_us(20);
        else
            ga_os_relax();
        if (spins % SLEEPS_TO_A_LOOK == SPINS && take_over(lock))
            return true;
    }
}

#define WAITED 0x80000000u

static bool now_mine(struct ga_mutex *m, uint32_t stack) {
    atomic_store_explicit(&m->stack, stack, memory_order_relaxed);
    return true;
}

// Who holds it will not give it back.
static bool is_left(const struct ga_mutex *m, uint32_t holder, uint32_t stack) {
    return holder == ga_lock_self() ? ga_os_left(atomic_load(&m->stack), stack) : is_dead(holder);
}

bool ga_mutex_lock(struct ga_mutex *m, int timeout_ms) {
    uint32_t seen = 0;
    uint32_t self = ga_lock_self();
    uint32_t stack = ga_os_stack();
    if (atomic_compare_exchange_strong_explicit(&m->state, &seen, self, memory_order_acquire,
                                                memory_order_relaxed))
        return now_mine(m, stack);
    uint64_t end = timeout_ms < 0 ? UINT64_MAX : ga_os_now_ms() + (uint64_t)timeout_ms;
    for (;;) {
        seen = atomic_load_explicit(&m->state, memory_order_relaxed);
        uint32_t holder = seen & ~WAITED;
        if (holder == 0 || is_left(m, holder, stack)) {
            if (atomic_compare_exchange_strong(&m->state, &seen, self | WAITED))
                return now_mine(m, stack);
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

uint32_t ga_mutex_holder(const struct ga_mutex *m) {
    return atomic_load(&m->state) & ~WAITED;
}

bool ga_mutex_take_from(struct ga_mutex *m, uint32_t holder) {
    uint32_t seen = atomic_load(&m->state);
    return (seen & ~WAITED) == holder &&
           atomic_compare_exchange_strong(&m->state, &seen, ga_lock_self() | WAITED) &&
           now_mine(m, ga_os_stack());
}

void ga_mutex_unlock(struct ga_mutex *m) {
    if (atomic_exchange_explicit(&m->state, 0, memory_order_release) & WAITED)
        ga_os_wake(&m->state, 1);
}
