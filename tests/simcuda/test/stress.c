// SPDX-License-Identifier: Apache-2.0
//
// stress SEED [ROUNDS]: four threads that allocate and free blocks of 256 B to 1 GiB at random,
// with both kinds of frees. After the rounds it frees everything and ends; without ROUNDS it runs
// until it is killed.

#include "testlib.h"

#include <pthread.h>

enum { THREADS = 4, BLOCKS = 16 };

static CUcontext ctx;
static unsigned long seed, rounds;

static CUresult (*alloc)(CUdeviceptr *, size_t);
static CUresult (*release)(CUdeviceptr);
static CUresult (*alloc_async)(CUdeviceptr *, size_t, CUstream);
static CUresult (*release_async)(CUdeviceptr, CUstream);

static uint64_t next(uint64_t *x) {
    *x ^= *x << 13;
    *x ^= *x >> 7;
    return *x ^= *x << 17;
}

static size_t random_size(uint64_t *x) {
    unsigned shift = 8 + (unsigned)(next(x) % 23);
    return ((size_t)1 << shift) - next(x) % 200;
}

static void *work(void *arg) {
    uint64_t x = (seed + 1) * 0x9e3779b97f4a7c15ull + (uintptr_t)arg;
    CUdeviceptr held[BLOCKS] = {0};
    CUstream s;
    CHECK(cuCtxSetCurrent(ctx), 0);
    CHECK(cuStreamCreate(&s, 1), 0);
    for (unsigned long i = 0; !rounds || i < rounds; i++) {
        unsigned k = (unsigned)(next(&x) % BLOCKS);
        bool async = next(&x) % 4 == 0;
        if (held[k]) {
            CHECK(async ? release_async(held[k], s) : release(held[k]), 0);
            held[k] = 0;
        } else {
            size_t n = random_size(&x);
            CUresult rc = async ? alloc_async(&held[k], n, s) : alloc(&held[k], n);
            if (rc != 0)
                CHECK(rc, 2);
        }
    }
    for (unsigned k = 0; k < BLOCKS; k++)
        CHECK(release(held[k]), 0);
    CHECK(cuStreamSynchronize(s), 0);
    CHECK(cuStreamDestroy(s), 0);
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t t[THREADS];
    seed = argc > 1 ? strtoul(argv[1], NULL, 10) : 1;
    rounds = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;
    *(void **)&alloc = driver_symbol("cuMemAlloc_v2");
    *(void **)&release = driver_symbol("cuMemFree_v2");
    *(void **)&alloc_async = driver_symbol("cuMemAllocAsync");
    *(void **)&release_async = driver_symbol("cuMemFreeAsync");
    ctx = open_device(0);
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&t[i], NULL, work, (void *)i), 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(t[i], NULL), 0);
    return 0;
}
