// SPDX-License-Identifier: Apache-2.0
//
// The robust mutexes of the shared file. Programs with different C libraries share them: a
// container may have musl, and the daemon has glibc. All use glibc's format. The first word is a
// futex with the holder's thread ID. A thread links the mutexes that it holds into a list; the link
// of a mutex is at byte 32. When the thread dies, the kernel walks the list, and sets OWNER_DIED in
// each futex.
//
// The first half of this file is for glibc, and calls glibc's functions. The second half is for
// musl, whose own mutexes have another format. state.c and process.c call sim_mutex_*.

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

// Locks m, and returns true if its last holder died while it held m. The mutex is then marked
// consistent before the caller repairs the state. If the caller dies during the repair, the kernel
// marks the mutex again, and the next holder repairs the state.
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

// The list of the mutexes that a thread holds. Its layout is that of the kernel's struct
// robust_list_head. musl registers a list of its own when a thread locks one of musl's robust
// mutexes. The simulated driver uses no such mutexes.
struct held {
    void *first;   // link of the mutex that was locked last, which points to the link of the mutex
                   // locked before it; &held: no mutex; NULL: the list is not registered
    long word;     // offset from a link to its futex word
    void *pending; // link of the mutex that is being locked or unlocked; NULL: none
};

static _Thread_local struct held held;

// Returns the futex of a mutex.
static _Atomic uint32_t *word_of(pthread_mutex_t *m) {
    return (_Atomic uint32_t *)(void *)m;
}

// Returns the link of a mutex.
static void **link_of(pthread_mutex_t *m) {
    return (void **)(void *)((char *)m + LINK_AT);
}

// Aborts. A program with musl finds the shared file with its mutexes, because the daemon makes it,
// whose driver is built with glibc.
void sim_mutex_init(pthread_mutex_t *m) {
    (void)m;
    abort();
}

// Locks m, and returns true if its last holder died while it held m. The link becomes pending
// before the thread writes its ID to the word, and a part of the list afterwards. If the thread
// dies in between, the kernel finds the mutex as the pending one, and sets OWNER_DIED too.
bool sim_mutex_lock(pthread_mutex_t *m) {
    _Atomic uint32_t *word = word_of(m);
    uint32_t self = (uint32_t)syscall(SYS_gettid), seen = 0;
    if (!held.first) {
        held.first = &held;
        held.word = -LINK_AT;
        syscall(SYS_set_robust_list, &held, sizeof held);
    }
    held.pending = link_of(m);
    // A thread that has waited sets WAITERS together with its ID, because other threads may still
    // wait. If none does, its unlock makes one needless call.
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

// Unlocks m. Callers unlock their mutexes in the reverse order of locking, so that m is always the
// first of the list.
void sim_mutex_unlock(pthread_mutex_t *m) {
    held.pending = link_of(m);
    held.first = *link_of(m);
    if (atomic_exchange(word_of(m), 0) & WAITERS)
        syscall(SYS_futex, word_of(m), WAKE, 1, NULL, NULL, 0);
    held.pending = NULL;
}

#endif
