// SPDX-License-Identifier: Apache-2.0
// permits: threads that take and return a device's slot, and count for themselves how many have
// one.
//
// permits THREADS ROUNDS own|primary|shared FILE
//
// In each round a thread makes a context (own), or retains and uses the primary context, or uses a
// context that the main thread made and keeps (shared). It enters the count in FILE, which several
// processes may share, allocates and frees some memory, leaves the count, and returns the context.
// So every thread in the count has a context. Prints "permits ok MOST", the most that were ever
// inside at the same time; or "permits err N" with the driver's code, and the failed call on
// stderr.
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cudriver.h"
#include "inside.h"

static int rounds;
static bool primary;
static CUcontext shared; // NULL: not in mode shared
static _Atomic int failed;

static bool good(CUresult r, const char *call) {
    int none = 0;
    if (r != 0 && atomic_compare_exchange_strong(&failed, &none, r))
        fprintf(stderr, "%s: %d\n", call, r);
    return r == 0;
}

static bool work(void) {
    CUdeviceptr block;
    if (!good(CU(cuMemAlloc_v2)(&block, 65536), "cuMemAlloc"))
        return false;
    nanosleep(&(struct timespec){0, 200000}, NULL); // gives other threads time to come
    return good(CU(cuMemFree_v2)(block), "cuMemFree");
}

static bool round_of(void) {
    CUcontext context = NULL;
    if (primary) {
        if (!good(CU(cuDevicePrimaryCtxRetain)(&context, 0), "cuDevicePrimaryCtxRetain") ||
            !good(CU(cuCtxSetCurrent)(context), "cuCtxSetCurrent"))
            return false;
    } else if (shared) {
        if (!good(CU(cuCtxSetCurrent)(shared), "cuCtxSetCurrent"))
            return false;
    } else if (!good(CU(cuCtxCreate_v2)(&context, 0, 0), "cuCtxCreate")) {
        return false;
    }
    inside_enter();
    bool worked = work();
    inside_leave();
    if (shared)
        return good(CU(cuCtxSetCurrent)(NULL), "cuCtxSetCurrent") && worked;
    if (!primary)
        return good(CU(cuCtxDestroy_v2)(context), "cuCtxDestroy") && worked;
    return good(CU(cuCtxSetCurrent)(NULL), "cuCtxSetCurrent") &&
           good(CU(cuDevicePrimaryCtxRelease_v2)(0), "cuDevicePrimaryCtxRelease") && worked;
}

static void *run(void *arg) {
    (void)arg;
    for (int i = 0; i < rounds && atomic_load(&failed) == 0; i++)
        round_of();
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t threads[64];
    if (argc != 5 || cu_open() != 0)
        return 2;
    int n = atoi(argv[1]);
    rounds = atoi(argv[2]);
    primary = strcmp(argv[3], "primary") == 0;
    if (n < 1 || n > 64 || inside_open(argv[4]) != 0 || !good(CU(cuInit)(0), "cuInit"))
        return 2;
    if (strcmp(argv[3], "shared") == 0 && !good(CU(cuCtxCreate_v2)(&shared, 0, 0), "cuCtxCreate"))
        return 2;
    for (int i = 0; i < n; i++)
        if (pthread_create(&threads[i], NULL, run, NULL) != 0)
            abort();
    for (int i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    if (failed)
        printf("permits err %d\n", failed);
    else
        printf("permits ok %d\n", inside_most());
    return failed != 0;
}
