// SPDX-License-Identifier: Apache-2.0
// The story "stopped": a program whose daemon stops answering for a while.
#include "processes.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

static CUcontext shared;

// The test stops the daemon. Then one thread asks for memory and frees its blocks one by one, while
// another thread allocates and frees. The test has a request wait in the daemon's queue, so that
// each free would be reported to the daemon.
#define BLOCKS 100
static atomic_int pairing;

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void note_call(double *longest, double began) {
    double took = seconds() - began;
    if (took > *longest)
        *longest = took;
}

// Says whether a call took so long that it must have waited for the daemon, not for a busy machine.
static void say_longest(const char *what, double longest) {
    if (longest < 3)
        say("%s: no call waits", what);
    else
        say("%s: a call took %.1f s", what, longest);
}

static void *pairs(void *arg) {
    double *longest = arg;
    CU(cuCtxSetCurrent)(shared);
    while (atomic_load(&pairing)) {
        CUdeviceptr p = 0;
        double began = seconds();
        if (CU(cuMemAlloc_v2)(&p, 4096) == 0)
            CU(cuMemFree_v2)(p);
        note_call(longest, began);
        usleep(1000);
    }
    return NULL;
}

static int tell_stopped(char **arguments) {
    CUdeviceptr blocks[BLOCKS] = {0};
    CUdeviceptr large = 0;
    pthread_t thread;
    double longest_pair = 0;
    double longest_free = 0;
    int failed = 0;
    (void)arguments;
    begin();
    CU(cuCtxGetCurrent)(&shared);
    for (int i = 0; i < BLOCKS; i++)
        failed += CU(cuMemAlloc_v2)(&blocks[i], 10 * MIB) != 0;
    say("%d not allocated", failed);
    at("the daemon stops");
    double began = seconds();
    say("alloc %d", CU(cuMemAlloc_v2)(&large, 400 * MIB));
    say("after %s", seconds() - began < 20 ? "five seconds or so" : "a long time");
    atomic_store(&pairing, 1);
    must(pthread_create(&thread, NULL, pairs, &longest_pair) == 0, "pthread_create");
    for (int i = 0; i < BLOCKS; i++) {
        began = seconds();
        failed += CU(cuMemFree_v2)(blocks[i]) != 0;
        note_call(&longest_free, began);
        usleep(20000);
    }
    atomic_store(&pairing, 0);
    must(pthread_join(thread, NULL) == 0, "pthread_join");
    say("%d not freed", failed);
    say_longest("frees", longest_free);
    say_longest("another thread", longest_pair);
    at("the daemon goes on");
    say("alloc %d", CU(cuMemAlloc_v2)(&blocks[0], 10 * MIB));
    // The library looks for a lost daemon at most once a second, and only in a call.
    atomic_store(&pairing, 1);
    must(pthread_create(&thread, NULL, pairs, &longest_pair) == 0, "pthread_create");
    at("it has answered");
    atomic_store(&pairing, 0);
    must(pthread_join(thread, NULL) == 0, "pthread_join");
    say("end");
    return 0;
}

const struct story stops[] = {{"stopped", tell_stopped}, {NULL, NULL}};
