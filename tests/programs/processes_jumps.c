// SPDX-License-Identifier: Apache-2.0
// Jumps out of a signal handler, from anywhere inside of the library.
#include "processes.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define BLOCKS 48
#define MOST_NS 150000 // from a call's begin to its signal

static sigjmp_buf back;
static volatile sig_atomic_t may_jump;
static volatile long jumps;
static uintptr_t from, to; // the code of the library
static CUdeviceptr block[BLOCKS];
static CUstream stream;
static uint64_t seed = 1;

static uintptr_t interrupted_at(const void *context) {
    const ucontext_t *c = context;
#if defined(__x86_64__)
    return (uintptr_t)c->uc_mcontext.gregs[REG_RIP];
#else
    return (uintptr_t)c->uc_mcontext.pc;
#endif
}

// Only out of the library's own code: a driver that is left in the middle keeps its locks.
static void jump(int number, siginfo_t *info, void *context) {
    uintptr_t at = interrupted_at(context);
    (void)number;
    (void)info;
    if (!may_jump || at < from || at >= to)
        return;
    jumps++;
    siglongjmp(back, 1); // NOLINT(bugprone-signal-handler,cert-err52-cpp)
}

static void find_library(void) {
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    must(maps != NULL, "/proc/self/maps");
    while (fgets(line, sizeof line, maps)) {
        unsigned long a, b;
        char mode[8];
        if (strstr(line, "libgpuarb.so") && sscanf(line, "%lx-%lx %7s", &a, &b, mode) == 3 &&
            mode[2] == 'x') {
            from = a;
            to = b;
        }
    }
    fclose(maps);
    must(to != 0, "the library");
}

static uint64_t any(uint64_t below) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (seed >> 33) % below;
}

static void take(CUdeviceptr *p) {
    size_t size = (1 + any(64)) * MIB;
    if (stream && any(2))
        (void)CU(cuMemAllocAsync)(p, size, stream);
    else
        (void)CU(cuMemAlloc_v2)(p, size);
}

static void give(CUdeviceptr *p) {
    if (stream && any(2))
        (void)CU(cuMemFreeAsync)(*p, stream);
    else
        (void)CU(cuMemFree_v2)(*p);
    *p = 0;
}

// One that was jumped out of may have been done, or not: it is done again.
static void one_call(void) {
    CUdeviceptr *p = &block[any(BLOCKS)];
    if (*p)
        give(p);
    else
        take(p);
}

static void fill(void) {
    CUdeviceptr p;
    for (size_t size = 64 * MIB; size >= MIB; size /= 2)
        while (CU(cuMemAlloc_v2)(&p, size) == 0)
            ;
}

// jumps NUMBER async|blocks
int tell_jumps(char **arguments) {
    long wanted = strtol(arguments[0], NULL, 10);
    struct sigaction action = {.sa_sigaction = jump, .sa_flags = SA_SIGINFO};
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGALRM};
    timer_t timer;
    find_library();
    begin();
    if (strcmp(arguments[1], "async") == 0)
        must(CU(cuStreamCreate)(&stream, 0) == 0, "a stream");
    event._sigev_un._tid = (pid_t)syscall(SYS_gettid);
    must(sigaction(SIGALRM, &action, NULL) == 0, "sigaction");
    must(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0, "timer_create");
    while (jumps < wanted) {
        struct itimerspec soon = {.it_value.tv_nsec = 1 + (long)any(any(MOST_NS) + 1)};
        must(timer_settime(timer, 0, &soon, NULL) == 0, "timer_settime");
        if (sigsetjmp(back, 1) == 0) {
            may_jump = 1;
            one_call();
        }
        may_jump = 0;
    }
    timer_delete(timer);
    at("it has jumped");
    for (size_t i = 0; i < BLOCKS; i++)
        if (block[i])
            give(&block[i]);
    if (stream)
        (void)CU(cuStreamSynchronize)(stream);
    fill();
    at("it is full");
    say("end");
    return 0;
}
