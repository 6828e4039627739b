// SPDX-License-Identifier: Apache-2.0
//
// Streams run in order and late: gates on them stand for work that has not been done yet.

#include "testlib.h"

#define MIB (1ull << 20)

enum { USED_CURRENT = 7, RESERVED_CURRENT = 5, RELEASE_THRESHOLD = 4 };

static uint64_t pool_get(CUmemoryPool pool, int attribute) {
    uint64_t v;
    CHECK(CU(cuMemPoolGetAttribute, CUmemoryPool, int, void *)(pool, attribute, &v), 0);
    return v;
}

static CUmemoryPool default_pool(void) {
    CUmemoryPool pool;
    CHECK(CU(cuDeviceGetDefaultMemPool, CUmemoryPool *, CUdevice)(&pool, 0), 0);
    return pool;
}

static void free_is_late(void) {
    CUmemoryPool pool = default_pool();
    CUstream s;
    CUdeviceptr p, q;
    struct gate g;
    size_t before = free_bytes();
    CHECK(cuStreamCreate(&s, 1), 0);
    CHECK(cuMemAllocAsync(&p, 3 * MIB, s), 0);
    CHECK(before - free_bytes(), 3 * MIB);
    gate_put(&g, s);
    CHECK(cuMemFreeAsync(p, s), 0);
    CHECK(cuMemFreeAsync(p, s), 1); // once
    CHECK(cuStreamQuery(s), 600);
    CHECK(before - free_bytes(), 3 * MIB);
    CHECK(pool_get(pool, USED_CURRENT), 3 * MIB);
    gate_open(&g);
    CHECK(cuStreamSynchronize(s), 0);
    CHECK(cuStreamQuery(s), 0);
    CHECK(free_bytes(), before);
    CHECK(pool_get(pool, USED_CURRENT), 0);
    CHECK(pool_get(pool, RESERVED_CURRENT), 0);

    // Executed, but not synchronised with: the pool keeps it.
    CUevent e;
    CHECK(cuEventCreate(&e, 0), 0);
    CHECK(cuMemAllocAsync(&p, MIB, s), 0);
    CHECK(cuMemFreeAsync(p, s), 0);
    CHECK(cuEventRecord(e, s), 0);
    while (cuEventQuery(e) == 600)
        ;
    CHECK(pool_get(pool, USED_CURRENT), 0);
    CHECK(pool_get(pool, RESERVED_CURRENT), MIB);
    CHECK(before - free_bytes(), MIB);
    CHECK(cuMemAllocAsync(&q, MIB, s), 0); // from what the pool has
    CHECK(before - free_bytes(), MIB);
    CHECK(cuMemFree(q), 0); // one free for all kinds
    CHECK(before - free_bytes(), MIB);
    CHECK(cuEventSynchronize(e), 0);
    CHECK(free_bytes(), before);
    CHECK(cuStreamDestroy(s), 0);
}

static void threshold(void) {
    CUmemoryPool pool = default_pool();
    size_t before = free_bytes();
    CUdeviceptr p, q;
    uint64_t keep = 2 * MIB;
    CHECK(CU(cuMemPoolSetAttribute, CUmemoryPool, int, void *)(pool, RELEASE_THRESHOLD, &keep), 0);
    CHECK(cuMemAllocAsync(&p, 3 * MIB, 0), 0);
    CHECK(cuMemAllocAsync(&q, 3 * MIB, 0), 0);
    CHECK(cuMemFreeAsync(p, 0), 0);
    CHECK(cuMemFreeAsync(q, 0), 0);
    CHECK(cuCtxSynchronize(), 0);
    CHECK(before - free_bytes(), keep);
    CHECK(pool_get(pool, RESERVED_CURRENT), keep);
    CHECK(CU(cuMemPoolTrimTo, CUmemoryPool, size_t)(pool, MIB), 0);
    CHECK(before - free_bytes(), MIB);
    CHECK(CU(cuMemPoolTrimTo, CUmemoryPool, size_t)(pool, 0), 0);
    CHECK(free_bytes(), before);
    keep = 0;
    CHECK(CU(cuMemPoolSetAttribute, CUmemoryPool, int, void *)(pool, RELEASE_THRESHOLD, &keep), 0);
}

static void own_pool(void) {
    CUmemPoolProps props = {.allocType = 1, .location = {.type = 1, .id = 0}};
    CUmemoryPool pool;
    CUdeviceptr p;
    size_t before = free_bytes();
    CHECK(CU(cuMemPoolCreate, CUmemoryPool *, const CUmemPoolProps *)(&pool, &props), 0);
    CHECK(CU(cuMemAllocFromPoolAsync, CUdeviceptr *, size_t, CUmemoryPool, CUstream)(&p, MIB, pool,
                                                                                     0),
          0);
    CHECK(before - free_bytes(), MIB);
    CHECK(CU(cuMemPoolDestroy, CUmemoryPool)(pool), 0);
    CHECK(CU(cuMemPoolDestroy, CUmemoryPool)(pool), 1);
    CHECK(before - free_bytes(), MIB); // its blocks outlive it
    CHECK(cuMemFreeAsync(p, 0), 0);
    CHECK(cuStreamSynchronize(0), 0);
    CHECK(free_bytes(), before);
    CHECK(CU(cuMemPoolDestroy, CUmemoryPool)(default_pool()), 1);
}

// Without room an asynchronous allocation waits for frees that are on their way.
static void waits_for_frees(void) {
    CUstream s[2];
    CUdeviceptr p;
    size_t all = free_bytes();
    CHECK(cuStreamCreate(&s[0], 1), 0);
    CHECK(cuStreamCreate(&s[1], 1), 0);
    for (int i = 0; i < 100; i++) {
        CHECK(cuMemAllocAsync(&p, all, s[i & 1]), 0);
        CHECK(cuMemFreeAsync(p, s[i & 1]), 0);
    }
    CHECK(cuStreamSynchronize(s[1]), 0);
    CHECK(free_bytes(), all);
    CHECK(cuStreamDestroy(s[0]), 0);
    CHECK(cuStreamDestroy(s[1]), 0);
}

// What a stream freed it has again at once, without more memory, though the free is yet to come;
// another stream has not.
static void again_in_its_stream(void) {
    CUstream s, other;
    CUdeviceptr p, q, r;
    struct gate g;
    size_t before = free_bytes();
    CHECK(cuStreamCreate(&s, 1), 0);
    CHECK(cuStreamCreate(&other, 1), 0);
    CHECK(cuMemAllocAsync(&p, MIB, s), 0);
    gate_put(&g, s);
    CHECK(cuMemFreeAsync(p, s), 0);
    CHECK(cuMemAllocAsync(&r, MIB, other), 0);
    CHECK(r == p, 0);
    CHECK(before - free_bytes(), 2 * MIB);
    CHECK(cuMemAllocAsync(&q, MIB, s), 0);
    CHECK(q == p, 1);
    CHECK(before - free_bytes(), 2 * MIB);
    CHECK(cuMemFreeAsync(q, s), 0);
    CHECK(cuMemAllocAsync(&q, MIB + 1, s), 0);
    CHECK(before - free_bytes(), 3 * MIB + 1);
    gate_open(&g);
    CHECK(cuMemFreeAsync(q, s), 0);
    CHECK(cuMemFreeAsync(r, s), 0);
    CHECK(cuStreamSynchronize(s), 0);
    CHECK(free_bytes(), before);
    CHECK(cuStreamDestroy(s), 0);
    CHECK(cuStreamDestroy(other), 0);
}

// One that was destroyed gives nothing back before its last block is freed.
static void destroyed_pool_keeps(void) {
    CUmemPoolProps props = {.allocType = 1, .location = {.type = 1, .id = 0}};
    CUmemoryPool pool;
    CUdeviceptr p[2];
    size_t before = free_bytes();
    CHECK(CU(cuMemPoolCreate, CUmemoryPool *, const CUmemPoolProps *)(&pool, &props), 0);
    for (int i = 0; i < 2; i++)
        CHECK(CU(cuMemAllocFromPoolAsync, CUdeviceptr *, size_t, CUmemoryPool, CUstream)(&p[i], MIB,
                                                                                         pool, 0),
              0);
    CHECK(cuMemFreeAsync(p[0], 0), 0);
    CHECK(CU(cuMemPoolDestroy, CUmemoryPool)(pool), 0);
    CHECK(cuCtxSynchronize(), 0);
    CHECK(before - free_bytes(), 2 * MIB);
    CHECK(cuMemFree(p[1]), 0);
    CHECK(free_bytes(), before);
}

static void events(void) {
    CUstream a, b;
    CUevent e, never;
    struct gate g;
    CHECK(cuStreamCreate(&a, 1), 0);
    CHECK(cuStreamCreate(&b, 1), 0);
    CHECK(cuEventCreate(&e, 0), 0);
    CHECK(cuEventCreate(&never, 0), 0);
    gate_put(&g, a);
    CHECK(cuEventRecord(e, a), 0);
    CHECK(cuStreamWaitEvent(b, e, 0), 0);
    CHECK(cuEventQuery(e), 600);
    CHECK(cuStreamQuery(b), 600);
    CHECK(cuEventQuery(never), 0);
    CHECK(cuStreamWaitEvent(b, never, 0), 0);
    gate_open(&g);
    CHECK(cuStreamSynchronize(b), 0);
    CHECK(cuEventQuery(e), 0);
    float ms = -1;
    CHECK(CU(cuEventElapsedTime, float *, CUevent, CUevent)(&ms, e, never), 400);
    CHECK(cuEventRecord(never, a), 0);
    CHECK(cuEventSynchronize(never), 0);
    CHECK(CU(cuEventElapsedTime, float *, CUevent, CUevent)(&ms, e, never), 0);
    CHECK(ms >= 0, 1);
    CHECK(cuStreamDestroy(a), 0);
    CHECK(cuStreamDestroy(b), 0);
}

// The legacy stream and the blocking ones wait for each other; others go on.
static void legacy(void) {
    CUstream blocking, free_running;
    CUevent e;
    struct gate g;
    CHECK(cuStreamCreate(&blocking, 0), 0);
    CHECK(cuStreamCreate(&free_running, 1), 0);
    CHECK(cuEventCreate(&e, 0), 0);
    gate_put(&g, blocking);
    CHECK(cuEventRecord(e, 0), 0);
    CHECK(cuEventQuery(e), 600);
    CHECK(cuStreamQuery(0), 600);
    CUevent f;
    CHECK(cuEventCreate(&f, 0), 0);
    CHECK(cuEventRecord(f, free_running), 0);
    CHECK(cuEventSynchronize(f), 0);
    CHECK(cuEventQuery(e), 600);
    gate_open(&g);
    CHECK(cuStreamSynchronize(0), 0);
    CHECK(cuEventQuery(e), 0);
    CHECK(cuStreamDestroy(blocking), 0);
    CHECK(cuStreamDestroy(free_running), 0);
}

static void call_driver(void *result) {
    CUdeviceptr p;
    *(CUresult *)result = cuMemAlloc(&p, 1);
}

static void no_calls_from_callbacks(void) {
    CUresult result = -1;
    CHECK(cuLaunchHostFunc(0, call_driver, &result), 0);
    CHECK(cuCtxSynchronize(), 0);
    CHECK(result, 800);
}

// Work goes on after its stream was destroyed.
static void destroyed_with_work(void) {
    CUstream s;
    CUdeviceptr p;
    struct gate g;
    size_t before = free_bytes();
    CHECK(cuStreamCreate(&s, 1), 0);
    CHECK(cuMemAllocAsync(&p, MIB, s), 0);
    gate_put(&g, s);
    CHECK(cuMemFreeAsync(p, s), 0);
    CHECK(cuStreamDestroy(s), 0);
    CHECK(before - free_bytes(), MIB);
    gate_open(&g);
    CHECK(cuCtxSynchronize(), 0);
    CHECK(free_bytes(), before);
}

int main(void) {
    open_device(0);
    free_is_late();
    threshold();
    own_pool();
    waits_for_frees();
    again_in_its_stream();
    destroyed_pool_keeps();
    events();
    legacy();
    no_calls_from_callbacks();
    destroyed_with_work();
    return 0;
}
