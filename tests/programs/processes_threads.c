// SPDX-License-Identifier: Apache-2.0
// Stories of threads that die, signals at any moment, and the ways in which a process ends.
#include "processes.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// Threads that die

static CUcontext shared;

struct mortal {
    CUdeviceptr p;
    CUstream s;
    CUresult r;
};

static void take(struct mortal *m) {
    m->r = CU(cuCtxSetCurrent)(shared);
    if (m->r == 0)
        m->r = CU(cuMemAlloc_v2)(&m->p, 20 * MIB);
    if (m->r == 0)
        m->r = CU(cuStreamCreate)(&m->s, 0);
}

static void *ends_by_pthread_exit(void *arg) {
    take(arg);
    pthread_exit(arg);
}

static void *waits_to_be_cancelled(void *arg) {
    take(arg);
    while (pause() < 0)
        ;
    return NULL;
}

// NOLINTBEGIN(bugprone-signal-handler)
// Leaves a signal handler by pthread_exit. The specification forbids this, but programs do it.
static void leave(int number) {
    (void)number;
    pthread_exit(NULL);
}
// NOLINTEND(bugprone-signal-handler)

// Calls pthread_exit in a signal handler, and so leaves whatever call the thread was in.
static void *ends_in_a_handler(void *arg) {
    take(arg);
    raise(SIGUSR2);
    return NULL;
}

static void *(*const deaths[])(void *) = {ends_by_pthread_exit, waits_to_be_cancelled,
                                          ends_in_a_handler};
#define DEATHS (sizeof deaths / sizeof deaths[0])
#define MORTALS 64

static void one_dies(struct mortal *m, int i) {
    pthread_t thread;
    must(pthread_create(&thread, NULL, deaths[(size_t)i % DEATHS], m) == 0, "pthread_create");
    if (deaths[(size_t)i % DEATHS] == waits_to_be_cancelled)
        pthread_cancel(thread);
    must(pthread_join(thread, NULL) == 0, "pthread_join");
}

// Lets more threads die than a fixed table of threads could hold.
static int tell_die(char **arguments) {
    static struct mortal all[MORTALS];
    int failed = 0, not_freed = 0;
    (void)arguments;
    signal(SIGUSR2, leave);
    begin();
    CU(cuCtxGetCurrent)(&shared);
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < MORTALS; i++)
            one_dies(&all[i], i);
        if (round == 0)
            at("the dead hold memory");
        for (int i = 0; i < MORTALS; i++) {
            failed += all[i].r != 0;
            not_freed += CU(cuMemFree_v2)(all[i].p) != 0 || CU(cuStreamDestroy_v2)(all[i].s) != 0;
        }
    }
    say("%d failed, %d not freed", failed, not_freed);
    at("all given back");
    say("end");
    return 0;
}

// Ends the calling thread in the middle of a call, by the raw system call, as a debugger or a
// handler might. The thread may have got what it asked for.
static void vanish(int number) {
    (void)number;
    syscall(SYS_exit, 0); // NOLINT(bugprone-signal-handler)
}

static atomic_int calling;

static void *is_in_a_call(void *arg) {
    struct mortal *m = arg;
    CU(cuCtxSetCurrent)(shared);
    atomic_store(&calling, 1);
    while (atomic_load(&calling)) {
        if (CU(cuMemAlloc_v2)(&m->p, 20 * MIB) == 0)
            CU(cuMemFree_v2)(m->p);
    }
    return NULL;
}

// The test slows the driver down (SIMCUDA_ALLOC_DELAY_US), so that the thread is nearly always in
// the delay, outside the driver's locks.
static int tell_vanish(char **arguments) {
    struct mortal m;
    pthread_t thread;
    (void)arguments;
    signal(SIGUSR2, vanish);
    begin();
    CU(cuCtxGetCurrent)(&shared);
    must(pthread_create(&thread, NULL, is_in_a_call, &m) == 0, "pthread_create");
    while (!atomic_load(&calling))
        sched_yield();
    struct timespec t = {0, 20000000};
    nanosleep(&t, NULL);
    pthread_kill(thread, SIGUSR2);
    must(pthread_join(thread, NULL) == 0, "pthread_join");
    crowd_take("after a thread vanished");
    at("after a thread vanished");
    crowd_give("after a thread vanished");
    say("end");
    return 0;
}

// A thread ends in the middle of a call that makes or ends the primary context. Other threads must
// not wait for it. The test slows the driver down in that call.
static void *is_in_a_turn(void *arg) {
    CUcontext context;
    (void)arg;
    atomic_store(&calling, 1);
    CU(cuDevicePrimaryCtxRetain)(&context, 0);
    return NULL;
}

static int tell_turn(char **arguments) {
    CUcontext context = NULL;
    pthread_t thread;
    (void)arguments;
    signal(SIGUSR2, vanish);
    begin();
    at("the driver is slow from here on");
    must(pthread_create(&thread, NULL, is_in_a_turn, NULL) == 0, "pthread_create");
    while (!atomic_load(&calling))
        sched_yield();
    at("it is in the driver");
    pthread_kill(thread, SIGUSR2);
    must(pthread_join(thread, NULL) == 0, "pthread_join");
    at("it is gone");
    for (int i = 0; i < 3; i++) {
        say("retain %d", CU(cuDevicePrimaryCtxRetain)(&context, 0));
        say("release %d", CU(cuDevicePrimaryCtxRelease_v2)(0));
    }
    say("end");
    return 0;
}

// Uses up all thread-specific keys, and the libraries' static memory for threads.
static int tell_keys(char **arguments) {
    CUdeviceptr p = 0;
    CUstream s = NULL;
    pthread_key_t key;
    (void)arguments;
    while (pthread_key_create(&key, NULL) == 0)
        ;
    begin();
    say("stream %d", CU(cuStreamCreate)(&s, 0));
    say("alloc %d", CU(cuMemAllocAsync)(&p, 5 * MIB, s));
    at("no key is left");
    say("free %d", CU(cuMemFreeAsync)(p, s));
    say("synchronize %d", CU(cuStreamSynchronize)(s));
    crowd_stop(crowd_start(20), "without keys");
    say("destroy %d", CU(cuStreamDestroy_v2)(s));
    say("end");
    return 0;
}

// One thread adds variables to the environment, which makes libc move and free it, while another
// thread asks for memory and is refused.
static atomic_int setting;

static void *sets_variables(void *arg) {
    char name[32];
    (void)arg;
    for (int i = 0; i < 30000; i++) {
        snprintf(name, sizeof name, "VARIABLE_%d", i);
        setenv(name, "x", 1); // NOLINT(concurrency-mt-unsafe)
    }
    atomic_store(&setting, 0);
    return NULL;
}

static int tell_environ(char **arguments) {
    CUdeviceptr p = 0;
    pthread_t thread;
    int granted = 0;
    (void)arguments;
    begin();
    atomic_store(&setting, 1);
    must(pthread_create(&thread, NULL, sets_variables, NULL) == 0, "pthread_create");
    while (atomic_load(&setting))
        granted += CU(cuMemAlloc_v2)(&p, (size_t)1 << 45) == 0;
    must(pthread_join(thread, NULL) == 0, "pthread_join");
    say("%d granted", granted);
    say("end");
    return 0;
}

// Signals

static atomic_int in_handler;
static CUresult handler_results[2];

// NOLINTBEGIN(bugprone-signal-handler)
static void allocate_in_handler(int number) {
    int saved = errno;
    CUdeviceptr p = 0;
    (void)number;
    handler_results[0] = CU(cuMemAlloc_v2)(&p, 50 * MIB);
    handler_results[1] = handler_results[0] == 0 ? CU(cuMemFree_v2)(p) : 0;
    atomic_fetch_add(&in_handler, 1);
    errno = saved;
}
// NOLINTEND(bugprone-signal-handler)

// Receives a signal whose handler allocates. The test sends it after "a signal comes". It may
// interrupt a call that has not reached the driver yet.
static int tell_signal(char **arguments) {
    CUdeviceptr p = 0;
    (void)arguments;
    must(signal(SIGUSR1, allocate_in_handler) != SIG_ERR, "signal");
    begin();
    say("alloc %d", CU(cuMemAlloc_v2)(&p, MIB));
    say("free %d", CU(cuMemFree_v2)(p));
    at("a signal comes");
    say("alloc %d", CU(cuMemAlloc_v2)(&p, 100 * MIB));
    while (atomic_load(&in_handler) == 0)
        sched_yield();
    say("in the handler: alloc %d, free %d", handler_results[0], handler_results[1]);
    at("after the signal");
    say("free %d", CU(cuMemFree_v2)(p));
    say("end");
    return 0;
}

// Receives signals all the time. They must not end a system call of the library early.
static atomic_int signals;

static void count_signal(int number) {
    (void)number;
    atomic_fetch_add(&signals, 1);
}

static int tell_timer(char **arguments) {
    struct itimerspec often = {{0, 300000}, {0, 300000}};
    struct sigaction count = {
        .sa_handler = count_signal}; // without SA_RESTART, so that system calls return EINTR
    timer_t timer;
    int failed = 0;
    (void)arguments;
    must(sigaction(SIGALRM, &count, NULL) == 0, "sigaction");
    must(timer_create(CLOCK_MONOTONIC, NULL, &timer) == 0, "timer_create");
    must(timer_settime(timer, 0, &often, NULL) == 0, "timer_settime");
    begin();
    for (int i = 0; i < 3000; i++) {
        CUdeviceptr p = 0;
        size_t size = i % 10 ? MIB : 64 * MIB;
        failed += CU(cuMemAlloc_v2)(&p, size) != 0 || CU(cuMemFree_v2)(p) != 0;
    }
    while (atomic_load(&signals) == 0)
        sched_yield();
    timer_delete(timer);
    say("%d failed", failed);
    at("after the signals");
    say("end");
    return 0;
}

// Ends

static CUdeviceptr last;

static void free_at_exit(void) {
    CUresult r = CU(cuMemFree_v2)(last);
    say("in an atexit handler: %s", r == 0 || r == 4 ? "freed, or the driver has ended" : "?");
}

__attribute__((destructor)) static void free_in_destructor(void) {
    if (last)
        say("in a destructor: %s", CU(cuMemFree_v2)(last) != 0 ? "refused" : "freed twice");
}

static int tell_atexit(char **arguments) {
    CUstream s = NULL;
    CUdeviceptr p = 0;
    (void)arguments;
    atexit(free_at_exit);
    begin();
    say("alloc %d", CU(cuMemAlloc_v2)(&last, 5 * MIB));
    say("stream %d", CU(cuStreamCreate)(&s, 0));
    say("async %d", CU(cuMemAllocAsync)(&p, 5 * MIB, s));
    say("free %d", CU(cuMemFreeAsync)(p, s));
    return 6;
}

static void *ends_last(void *arg) {
    CUdeviceptr p = 0;
    (void)arg;
    pthread_join(*(pthread_t *)arg, NULL);
    CU(cuCtxSetCurrent)(shared);
    say("after main: alloc %d", CU(cuMemAlloc_v2)(&p, MIB));
    say("free %d", CU(cuMemFree_v2)(p));
    exit(8);
}

// The process continues after its first thread has ended. "before": the thread begins before that.
static void *goes_on(void *arg) {
    CUdeviceptr p = 0;
    pthread_join(*(pthread_t *)arg, NULL);
    at("first thread ended");
    if (!shared)
        begin();
    else
        CU(cuCtxSetCurrent)(shared);
    say("alloc %d", CU(cuMemAlloc_v2)(&p, 60 * MIB));
    at("allocated");
    CUdeviceptr q = 0;
    say("more %d", CU(cuMemAlloc_v2)(&q, 60 * MIB));
    say("free %d", CU(cuMemFree_v2)(p));
    at("freed");
    say("end");
    exit(0);
}

static int tell_outlived(char **arguments) {
    static pthread_t first, second;
    if (arguments[0] && strcmp(arguments[0], "before") == 0) {
        begin();
        CU(cuCtxGetCurrent)(&shared);
    }
    first = pthread_self();
    must(pthread_create(&second, NULL, goes_on, &first) == 0, "pthread_create");
    pthread_exit(NULL);
}

// The first thread ends, and holds something that another thread needs: "waits", its place in the
// queue; "uses", its slot on a context that a third thread made.
static void *makes(void *arg) {
    begin();
    CU(cuCtxGetCurrent)(&shared);
    return arg;
}

static void *needs_it(void *arg) {
    CUdeviceptr p = 0;
    at("the first thread is in it");
    pthread_kill(*(pthread_t *)arg, SIGUSR2);
    must(pthread_join(*(pthread_t *)arg, NULL) == 0, "pthread_join");
    say("use %d", CU(cuCtxSetCurrent)(shared));
    say("alloc %d", CU(cuMemAlloc_v2)(&p, 10 * MIB));
    at("the first thread has ended");
    say("free %d", CU(cuMemFree_v2)(p));
    say("end");
    exit(0);
}

static int tell_needed(char **arguments) {
    static pthread_t first, maker, second;
    CUdeviceptr p = 0;
    (void)arguments;
    signal(SIGUSR2, leave);
    first = pthread_self();
    must(pthread_create(&maker, NULL, makes, NULL) == 0, "pthread_create");
    must(pthread_join(maker, NULL) == 0, "pthread_join");
    say("use %d", CU(cuCtxSetCurrent)(shared));
    say("alloc %d", CU(cuMemAlloc_v2)(&p, 10 * MIB));
    must(pthread_create(&second, NULL, needs_it, &first) == 0, "pthread_create");
    for (;;)
        pause();
}

static void busy_stream(void) {
    for (int i = 0; i < 3; i++) {
        CUstream s = NULL;
        CUdeviceptr p = 0;
        CU(cuStreamCreate)(&s, 0);
        for (int n = 0; n < 50; n++)
            if (CU(cuMemAllocAsync)(&p, MIB, s) == 0)
                CU(cuMemFreeAsync)(p, s);
    }
}

// Ends the process with threads in calls and work in its streams.
static int tell_exit(char **arguments) {
    const char *how = arguments[0] ? arguments[0] : "exit";
    begin();
    CU(cuCtxGetCurrent)(&shared);
    if (strcmp(how, "main") == 0) {
        static pthread_t first, second;
        first = pthread_self();
        must(pthread_create(&second, NULL, ends_last, &first) == 0, "pthread_create");
        pthread_exit(NULL);
    }
    busy_stream();
    crowd_start(-1);
    if (strcmp(how, "_exit") == 0)
        _exit(5);
    if (strcmp(how, "quick_exit") == 0)
        quick_exit(5);
    if (strcmp(how, "abort") == 0)
        abort();
    if (strcmp(how, "exit") == 0)
        exit(5);
    return 5;
}

const struct story threads[] = {
    {"die", tell_die},           {"vanish", tell_vanish},   {"turn", tell_turn},
    {"keys", tell_keys},         {"environ", tell_environ}, {"signal", tell_signal},
    {"timer", tell_timer},       {"atexit", tell_atexit},   {"exit", tell_exit},
    {"outlived", tell_outlived}, {"needed", tell_needed},   {NULL, NULL},
};
