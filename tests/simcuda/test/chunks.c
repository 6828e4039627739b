// SPDX-License-Identifier: Apache-2.0
//
// chunks GRANULE REMAPS: tests pools made of chunks. Pieces of two chunks cannot be joined, unless
// the driver remaps.

#include "testlib.h"

#define MIB (1ull << 20)

enum { RELEASE_THRESHOLD = 4, RESERVED_CURRENT = 5, USED_CURRENT = 7 };

static CUmemoryPool pool;
static uint64_t granule;

static uint64_t pool_get(int attribute) {
    uint64_t v;
    CHECK(CU(cuMemPoolGetAttribute, CUmemoryPool, int, void *)(pool, attribute, &v), 0);
    return v;
}

static uint64_t rounded(uint64_t bytes) {
    return (bytes + granule - 1) / granule * granule;
}

static CUdeviceptr take(uint64_t bytes, CUstream s) {
    CUdeviceptr p;
    CHECK(cuMemAllocAsync(&p, bytes, s), 0);
    return p;
}

static void give(CUdeviceptr p, CUstream s) {
    CHECK(cuMemFreeAsync(p, s), 0);
    CHECK(cuStreamSynchronize(s), 0);
}

static void trim(uint64_t keep) {
    CHECK(CU(cuMemPoolTrimTo, CUmemoryPool, size_t)(pool, keep), 0);
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    granule = strtoull(argv[1], NULL, 10);
    bool remaps = argv[2][0] == '1';
    CUcontext ctx;
    CUstream s, other;
    uint64_t keep = UINT64_MAX;
    CHECK(cuInit(0), 0);
    CHECK(cuCtxCreate(&ctx, 0, 0), 0);
    CHECK(cuStreamCreate(&s, 1), 0);
    CHECK(cuStreamCreate(&other, 1), 0);
    CHECK(CU(cuDeviceGetDefaultMemPool, CUmemoryPool *, CUdevice)(&pool, 0), 0);
    CHECK(CU(cuMemPoolSetAttribute, CUmemoryPool, int, void *)(pool, RELEASE_THRESHOLD, &keep), 0);
    size_t before = free_bytes();

    // Two pieces of 100 MiB are kept, and a block of 200 MiB is wanted.
    CUdeviceptr a = take(100 * MIB, s), b = take(100 * MIB, s);
    CHECK(pool_get(RESERVED_CURRENT), 2 * rounded(100 * MIB));
    CHECK(before - free_bytes(), 2 * rounded(100 * MIB));
    give(a, s);
    give(b, s);
    CHECK(pool_get(USED_CURRENT), 0);
    CHECK(pool_get(RESERVED_CURRENT), 2 * rounded(100 * MIB));
    a = take(200 * MIB, other);
    uint64_t both = 2 * rounded(100 * MIB), large = rounded(200 * MIB);
    CHECK(pool_get(RESERVED_CURRENT), remaps ? both : both + large);
    CHECK(before - free_bytes(), pool_get(RESERVED_CURRENT));
    CHECK(pool_get(USED_CURRENT), 200 * MIB);
    trim(0);
    CHECK(pool_get(RESERVED_CURRENT), large); // the other chunks have no block
    give(a, s);

    // A piece that is large enough is used and cut. A chunk with a block in it stays.
    a = take(150 * MIB, s);
    b = take(40 * MIB, s);
    CHECK(pool_get(RESERVED_CURRENT), large);
    give(a, s);
    trim(0);
    CHECK(pool_get(RESERVED_CURRENT), large);
    a = take(151 * MIB, s);
    CHECK(pool_get(RESERVED_CURRENT), large + rounded(151 * MIB));
    give(a, s);
    give(b, s);
    a = take(200 * MIB, s); // its pieces were joined again
    CHECK(pool_get(RESERVED_CURRENT), large + rounded(151 * MIB));
    give(a, s);
    trim(large + 1);
    CHECK(pool_get(RESERVED_CURRENT), large + rounded(151 * MIB));
    trim(large);
    CHECK(pool_get(RESERVED_CURRENT) <= large, 1);
    trim(0);
    CHECK(pool_get(RESERVED_CURRENT), 0);
    CHECK(free_bytes(), before);
    CHECK(take(1, s) != 0, 1);
    CHECK(pool_get(RESERVED_CURRENT), granule);
    puts("ok");
    return 0;
}
