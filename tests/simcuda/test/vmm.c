// SPDX-License-Identifier: Apache-2.0
//
// Memory, addresses and mappings, each with its own life.

#include "testlib.h"

#define MIB (1ull << 20)

static const CUmemAllocationProp prop = {.type = 1, .location = {.type = 1, .id = 0}};

static CUmemGenericAllocationHandle create(size_t size, CUresult want) {
    CUmemGenericAllocationHandle h = 0;
    CHECK(CU(cuMemCreate, CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
             unsigned long long)(&h, size, &prop, 0),
          want);
    return h;
}

#define cuMemRelease CU(cuMemRelease, CUmemGenericAllocationHandle)
#define cuMemReserve                                                                               \
    CU(cuMemAddressReserve, CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long)
#define cuMemMap                                                                                   \
    CU(cuMemMap, CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long)
#define cuMemUnmap CU(cuMemUnmap, CUdeviceptr, size_t)
#define cuMemAddressFree CU(cuMemAddressFree, CUdeviceptr, size_t)
#define cuMemSetAccess CU(cuMemSetAccess, CUdeviceptr, size_t, const CUmemAccessDesc *, size_t)

int main(void) {
    open_device(0);
    size_t before = free_bytes(), granularity = 0;
    CHECK(CU(cuMemGetAllocationGranularity, size_t *, const CUmemAllocationProp *,
             int)(&granularity, &prop, 0),
          0);
    CHECK(granularity, 2 * MIB);
    create(MIB, 1);
    create(0, 1);
    create(before + 2 * MIB, 2);
    CUmemGenericAllocationHandle a = create(4 * MIB, 0), b = create(2 * MIB, 0);
    CHECK(before - free_bytes(), 6 * MIB);

    CUdeviceptr p;
    CUmemAccessDesc access = {.location = {1, 0}, .flags = 3};
    char text[8] = "";
    CHECK(cuMemReserve(&p, 8 * MIB, 0, 0, 0), 0);
    CHECK(before - free_bytes(), 6 * MIB);             // addresses cost nothing
    CHECK(cuMemMap(p + 6 * MIB, 4 * MIB, 0, a, 0), 1); // beyond the end
    CHECK(cuMemMap(p, 4 * MIB, 0, a, 0), 0);
    CHECK(cuMemMap(p + 2 * MIB, 2 * MIB, 0, b, 0), 1); // taken
    CHECK(cuMemMap(p + 4 * MIB, 2 * MIB, 0, b, 0), 0);
    CHECK(cuMemcpyHtoD(p, "before", 7), 1); // no access yet
    CHECK(cuMemSetAccess(p, 8 * MIB, &access, 1), 1);
    CHECK(cuMemSetAccess(p, 6 * MIB, &access, 1), 0);
    CHECK(cuMemcpyHtoD(p + 4 * MIB - 3, "across", 7), 0);
    CHECK(cuMemcpyDtoH(text, p + 4 * MIB - 3, 7), 0);
    CHECK(strcmp(text, "across"), 0);
    CHECK(cuMemcpyHtoD(p + 6 * MIB - 3, "across", 7), 1);
    CHECK(cuMemFree(p), 1);

    CHECK(cuMemRelease(a), 0);
    CHECK(cuMemRelease(a), 1);
    CHECK(before - free_bytes(), 6 * MIB); // still mapped
    CHECK(CU(cuMemRetainAllocationHandle, CUmemGenericAllocationHandle *,
             void *)(&a, (void *)(uintptr_t)(p + MIB)),
          0);
    CHECK(cuMemUnmap(p, 2 * MIB), 1); // a part of a mapping
    CHECK(cuMemAddressFree(p, 8 * MIB), 1);
    CHECK(cuMemUnmap(p, 6 * MIB), 0);
    CHECK(before - free_bytes(), 6 * MIB); // both handles live
    CHECK(cuMemRelease(a), 0);
    CHECK(before - free_bytes(), 2 * MIB);
    CHECK(cuMemRelease(b), 0);
    CHECK(free_bytes(), before);
    CHECK(cuMemAddressFree(p, 8 * MIB), 0);

    // Host memory is nothing of the device's.
    const CUmemAllocationProp host = {.type = 1, .location = {.type = 2, .id = 0}};
    CHECK(CU(cuMemCreate, CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
             unsigned long long)(&a, 4 * MIB, &host, 0),
          0);
    CHECK(free_bytes(), before);
    CHECK(cuMemRelease(a), 0);
    return 0;
}
