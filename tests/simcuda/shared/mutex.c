// SPDX-License-Identifier: Apache-2.0
//
// The robust mutexes of the shared file. Programs with different C libraries share them: a
// container may have musl, and the daemon has glibc. All use glibc's format. The first word is a
// futex with the holder's thread ID. At byte 32 is a link of the list of the holder's mutexes. The
// kernel walks this list when the holder dies.
//
// The first half of this file is for glibc, and calls its functions. The second half is for musl,
// whose own mutexes have another format. state.c and process.c call the functions.

#include "sim.h"

#include <errno.h>

#ifdef __GLIBC__

void sim_mutex_init(pthread_mutex_t *m) {
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(m, &attr);
    pthread_mutexattr_destroy(&attr);
}

// The mutex is consistent again before the caller repairs the state. If the caller dies meanwhile,
// the kernel marks the mutex, and the next holder repairs.
bool sim_mutex_lock(pthread_mutex_t *m) {
    bool died = pthread_mutex_lock(m) == EOWNERDEAD;
    if (died)
        pthread_mutex_consistent(m);
    return died;
}

void sim_mutex_unlock(pthread_mutex_t *m) {
    pthread_mutex_unlock(m);
}

#else

#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

// From linux/futex.h, which musl's compiler wrapper does not find.
enum { WAIT = 0, WAKE = 1 };
#define WAITERS 0x80000000u
#define OWNER_DIED 0x40000000u

enum { LINK_AT = 32 }; // bytes from the futex word to the link

// The list of the mutexes that a thread holds, as the kernel has it (struct robust_list_head). musl
// registers a list of its own only for its own robust mutexes, which the simulated driver has none
// of.
struct held {
    void *first; // the link of the newest mutex, which points at the one before; empty: this list
    long word;   // offset from a link to its futex word
    void *pending;
};

static _Thread_local struct held held;

// Returns the futex word of a mutex.
static _Atomic uint32_t *word_of(pthread_mutex_t *m) {
    return (_Atomic uint32_t *)(void *)m;
}

static void **link_of(pthread_mutex_t *m) {
    return (void **)(void *)((char *)m + LINK_AT);
}

// The shared file must exist: the daemon makes it, and its driver has glibc.
void sim_mutex_init(pthread_mutex_t *m) {
    (void)m;
    abort();
}

// The link becomes pending before the word is taken, and part of the list afterwards: a thread that
// dies in between leaves OWNER_DIED as well.
bool sim_mutex_lock(pthread_mutex_t *m) {
    _Atomic uint32_t *word = word_of(m);
    uint32_t self = (uint32_t)syscall(SYS_gettid), seen = 0;
    if (!held.first) {
        held.first = &held;
        held.word = -LINK_AT;
        syscall(SYS_set_robust_list, &held, sizeof held);
    }
    held.pending = link_of(m);
    // A thread that has waited keeps the bit: there may be others, and it wakes one for nothing.
    uint32_t mine = self;
    for (;;) {
        seen = 0;
        if (atomic_compare_exchange_strong(word, &seen, mine))
            break;
        if (seen & OWNER_DIED) {
            if (atomic_compare_exchange_strong(word, &seen, mine | (seen & WAITERS)))
                break;
            continue;
        }
        mine = self | WAITERS;
        if (seen & WAITERS || atomic_compare_exchange_strong(word, &seen, seen | WAITERS))
            syscall(SYS_futex, word, WAIT, seen | WAITERS, NULL, NULL, 0);
    }
    *link_of(m) = held.first;
    held.first = link_of(m);
    held.pending = NULL;
    return (seen & OWNER_DIED) != 0;
}

// Mutexes are released in the reverse order of their locking, so that m is the first of the list.
void sim_mutex_unlock(pthread_mutex_t *m) {
    held.pending = link_of(m);
    held.first = *link_of(m);
    if (atomic_exchange(word_of(m), 0) & WAITERS)
        syscall(SYS_futex, word_of(m), WAKE, 1, NULL, NULL, 0);
    held.pending = NULL;
}

#endif
