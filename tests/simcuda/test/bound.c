// SPDX-License-Identifier: Apache-2.0
//
// Memory that is mapped where no address leads, into arrays and multicast objects, is there until
// it is unmapped, released or not.

#include "testlib.h"

#define MIB (1ull << 20)
#define TILE 65536

typedef unsigned long long memory;

struct properties {
    unsigned tile[3], first_level;
    unsigned long long tail;
    unsigned flags, reserved[4];
};

struct map_info {
    int object_type;
    uintptr_t object;
    int part_type;
    union {
        struct {
            unsigned level, layer, offset[3], extent[3];
        } level;
        struct {
            unsigned layer;
            unsigned long long offset, size;
        } tail;
    } part;
    int operation, handle_type;
    memory memory;
    unsigned long long offset;
    unsigned devices, flags, reserved[2];
};

enum { MAP = 1, UNMAP = 2, SPARSE = 0x40, DEFERRED = 0x80 };

#define cuMemRelease CU(cuMemRelease, memory)
#define cuMapArrays CU(cuMemMapArrayAsync, struct map_info *, unsigned, CUstream)
#define cuArrayDestroy CU(cuArrayDestroy, CUarray)
#define cuMipmapDestroy CU(cuMipmappedArrayDestroy, uintptr_t)

static memory create(size_t size, unsigned short usage) {
    CUmemAllocationProp prop = {.type = 1, .location = {1, 0}, .usage = usage};
    memory m;
    CHECK(CU(cuMemCreate, memory *, size_t, const CUmemAllocationProp *,
             unsigned long long)(&m, size, &prop, 0),
          0);
    return m;
}

static CUarray array(unsigned flags) {
    CUDA_ARRAY3D_DESCRIPTOR d = {512, 300, 0, 0x20, 1, flags}; // 4 × 3 tiles of 128 × 128
    CUarray a;
    CHECK(CU(cuArray3DCreate_v2, CUarray *, const CUDA_ARRAY3D_DESCRIPTOR *)(&a, &d), 0);
    return a;
}

static void tiles(CUstream s) {
    size_t before = free_bytes();
    CUarray a = array(SPARSE);
    struct properties p;
    CHECK(CU(cuArrayGetSparseProperties, struct properties *, CUarray)(&p, a), 0);
    CHECK(p.tile[0] == 128 && p.tile[1] == 128 && p.tile[2] == 1, 1);
    CHECK(before - free_bytes(), 0);
    memory m = create(2 * MIB, 1), other = create(2 * MIB, 1), plain = create(2 * MIB, 0);
    struct map_info i = {.object = a, .operation = MAP, .memory = m, .devices = 1};
    i.part.level.extent[0] = 256;
    i.part.level.extent[1] = 300; // to the edge
    i.part.level.extent[2] = 1;
    CHECK(cuMapArrays(&i, 0, s), 1);
    i.devices = 3;
    CHECK(cuMapArrays(&i, 1, s), 1);
    i.devices = 1;
    i.part.level.offset[0] = 64; // no tile begins there
    CHECK(cuMapArrays(&i, 1, s), 1);
    i.part.level.offset[0] = 384; // beyond the edge
    CHECK(cuMapArrays(&i, 1, s), 1);
    i.part.level.offset[0] = 0;
    i.offset = 2 * MIB - 5 * TILE; // for six tiles
    CHECK(cuMapArrays(&i, 1, s), 1);
    i.offset = 0;
    i.memory = plain;
    CHECK(cuMapArrays(&i, 1, s), 1);
    CHECK(cuMemRelease(plain), 0);
    i.memory = m;
    struct gate g;
    gate_put(&g, s);
    CHECK(cuMapArrays(&i, 1, s), 0);
    CHECK(cuMemRelease(m), 0);
    CHECK(before - free_bytes(), 4 * MIB); // also while it is on its way
    gate_open(&g);
    CHECK(cuStreamSynchronize(s), 0);
    CHECK(before - free_bytes(), 4 * MIB);
    CHECK(cuMapArrays(&i, 1, s), 1); // its handle is gone
    // Half of the tiles become the other's, then all.
    i.memory = other;
    i.part.level.extent[0] = 128;
    CHECK(cuMapArrays(&i, 1, s), 0);
    CHECK(cuMemRelease(other), 0);
    CHECK(cuStreamSynchronize(s), 0);
    CHECK(before - free_bytes(), 4 * MIB);
    i.operation = UNMAP;
    CHECK(cuMapArrays(&i, 1, s), 1); // a handle has no place there
    i.memory = 0;
    i.part.level.offset[0] = 128;
    gate_put(&g, s);
    CHECK(cuMapArrays(&i, 1, s), 0);
    CHECK(before - free_bytes(), 4 * MIB);
    gate_open(&g);
    CHECK(cuStreamSynchronize(s), 0);
    CHECK(before - free_bytes(), 2 * MIB);
    CHECK(cuArrayDestroy(a), 0);
    CHECK(before - free_bytes(), 0);
    CHECK(cuMapArrays(&i, 1, s), 400);
}

static void levels(CUstream s) {
    size_t before = free_bytes();
    CUDA_ARRAY3D_DESCRIPTOR d = {512, 512, 2, 0x20, 1, SPARSE | 1};
    uintptr_t a;
    struct properties p;
    CHECK(CU(cuMipmappedArrayCreate, uintptr_t *, const CUDA_ARRAY3D_DESCRIPTOR *, unsigned)(&a, &d,
                                                                                             10),
          0);
    CHECK(CU(cuMipmappedArrayGetSparseProperties, struct properties *, uintptr_t)(&p, a), 0);
    CHECK(p.first_level, 3); // 512, 256 and 128 hold tiles
    CHECK(p.tail, TILE);
    memory m = create(2 * MIB, 1);
    struct map_info i = {
        .object_type = 1, .object = a, .part_type = 1, .operation = MAP, .memory = m, .devices = 1};
    i.part.tail.layer = 2;
    i.part.tail.size = TILE;
    CHECK(cuMapArrays(&i, 1, s), 1);
    i.part.tail.layer = 1;
    CHECK(cuMapArrays(&i, 1, s), 0);
    CHECK(cuMemRelease(m), 0);
    CHECK(cuStreamSynchronize(s), 0);
    CHECK(before - free_bytes(), 2 * MIB);
    CHECK(cuMipmapDestroy(a), 0);
    CHECK(before - free_bytes(), 0);
}

// As a whole, whatever part is named; and with its context it ends.
static void deferred(CUstream s) {
    CUcontext c;
    CHECK(cuCtxCreate(&c, 0, 0), 0);
    size_t before = free_bytes();
    CUarray a = array(DEFERRED);
    CHECK(CU(cuArrayGetSparseProperties, struct properties *, CUarray)(&(struct properties){0}, a),
          1);
    memory m = create(2 * MIB, 1);
    struct map_info i = {.object = a, .part_type = 7, .operation = MAP, .memory = m, .devices = 1};
    CHECK(cuMapArrays(&i, 1, CU_STREAM_LEGACY), 0);
    CHECK(cuMemRelease(m), 0);
    CHECK(cuCtxSynchronize(), 0);
    CHECK(before - free_bytes(), 2 * MIB);
    CHECK(cuCtxDestroy(c), 0);
    CHECK(CU(cuStreamBeginCapture_v2, CUstream, int)(s, 0), 0);
    CHECK(cuMapArrays(&i, 1, s), 900);
    CHECK(CU(cuStreamEndCapture, CUstream, uintptr_t *)(s, &(uintptr_t){0}), 901);
}

static void multicast(void) {
    struct {
        unsigned devices;
        size_t size;
        unsigned long long handle_types, flags;
    } p = {2, 4 * MIB, 0, 0};
#define cuBind CU(cuMulticastBindMem, memory, size_t, memory, size_t, size_t, unsigned long long)
#define cuBindAddress                                                                              \
    CU(cuMulticastBindAddr, memory, size_t, CUdeviceptr, size_t, unsigned long long)
#define cuUnbind CU(cuMulticastUnbind, memory, CUdevice, size_t, size_t)
#define cuAddDevice CU(cuMulticastAddDevice, memory, CUdevice)
#define cuMap CU(cuMemMap, CUdeviceptr, size_t, size_t, memory, unsigned long long)
    size_t before = free_bytes();
    memory object, m = create(4 * MIB, 0);
    CUdeviceptr at;
    CHECK(CU(cuMulticastCreate, memory *, const void *)(&object, &p), 0);
    CHECK(before - free_bytes(), 4 * MIB);
    CHECK(cuAddDevice(object, 0), 0);
    CHECK(cuAddDevice(object, 0), 1);
    CHECK(cuBind(object, 0, m, 0, 2 * MIB, 0), 801); // not all devices are there
    CHECK(cuAddDevice(object, 1), 0);
    CHECK(cuBind(object, MIB, m, 0, 2 * MIB, 0), 1);
    CHECK(cuBind(object, 0, m, 4 * MIB, 2 * MIB, 0), 1);
    CHECK(cuBind(object, 0, object, 0, 2 * MIB, 0), 1);
    CHECK(cuBind(object, 0, m, 2 * MIB, 2 * MIB, 0), 0);
    CHECK(cuBind(object, 0, m, 0, 4 * MIB, 0), 1); // taken
    CHECK(CU(cuMemAddressReserve, CUdeviceptr *, size_t, size_t, CUdeviceptr,
             unsigned long long)(&at, 4 * MIB, 0, 0, 0),
          0);
    CHECK(cuMap(at, 4 * MIB, 0, m, 0), 0);
    CHECK(cuBindAddress(object, 2 * MIB, at + 2 * MIB, 2 * MIB, 0), 0);
    CHECK(cuMemRelease(m), 0);
    CHECK(CU(cuMemUnmap, CUdeviceptr, size_t)(at, 4 * MIB), 0);
    CHECK(before - free_bytes(), 4 * MIB);
    CHECK(cuUnbind(object, 0, 0, 4 * MIB), 1);
    CHECK(cuUnbind(object, 1, 0, 2 * MIB), 1);
    CHECK(cuUnbind(object, 0, 0, 2 * MIB), 0);
    CHECK(before - free_bytes(), 4 * MIB);
    CHECK(cuMap(at, 4 * MIB, 0, object, 0), 0);
    CHECK(cuMemRelease(object), 0);
    CHECK(before - free_bytes(), 4 * MIB);
    CHECK(CU(cuMemUnmap, CUdeviceptr, size_t)(at, 4 * MIB), 0);
    CHECK(before - free_bytes(), 0);
    CHECK(CU(cuMemAddressFree, CUdeviceptr, size_t)(at, 4 * MIB), 0);
}

int main(void) {
    CUcontext ctx = open_device(0);
    CUstream s;
    CHECK(cuStreamCreate(&s, 1), 0);
    tiles(s);
    levels(s);
    deferred(s);
    multicast();
    CHECK(cuStreamDestroy(s), 0);
    CHECK(cuCtxDestroy(ctx), 0);
    return 0;
}
