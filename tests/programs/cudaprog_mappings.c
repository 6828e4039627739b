// SPDX-License-Identifier: Apache-2.0
// cudaprog's commands for virtual memory management, and for arrays and multicast objects that it
// backs:
//
//   create NAME SIZE [DEVICE]    cuMemCreate;   createhost NAME SIZE [PLACE]: in
//                                host memory, a CUmemLocationType (2)
//   releasemem NAME              cuMemRelease (by name, also after the last one)
//   reserve NAME SIZE            cuMemAddressReserve
//   map NAME OFFSET SIZE MEMORY  cuMemMap at a reserved address
//   unmap NAME OFFSET SIZE       cuMemUnmap
//   retain NEW NAME OFFSET       cuMemRetainAllocationHandle of what is mapped there
//   createtiles NAME SIZE        cuMemCreate of what arrays can be mapped to
//   maptiles ARRAY LEVEL LAYER X Y Z WIDTH HEIGHT DEPTH MEMORY OFFSET STREAM
//                                cuMemMapArrayAsync; MEMORY -: unmapped; mipmaptiles:
//                                of a mipmapped array; …ptsz
//   maptail MIPMAP LAYER OFFSET SIZE MEMORY OFFSET STREAM
//   multicast NAME DEVICES SIZE; multicastadd NAME DEVICE
//   bindmem NAME OFFSET MEMORY FROM SIZE [DEVICE]  cuMulticastBindMem, or with a device
//                                cuMulticastBindMem_v2
//   bindaddr NAME OFFSET ADDRESS FROM SIZE [DEVICE]  the same of what is mapped there
//   unbind NAME DEVICE OFFSET SIZE  cuMulticastUnbind
#include "cudaprog.h"

#include <string.h>

static void do_create(const struct command *c) {
    struct {
        int type, handle_types, location_type, location;
        uint64_t more[2];
    } properties = {1, 0, place_type, (int)number_or(c, 3, (uint64_t)device), {0}};
    enum { DESCRIPTOR = 1, FABRIC = 8 };
    if (strcmp(c->word[0], "createshared") == 0)
        properties.handle_types = DESCRIPTOR;
    if (strcmp(c->word[0], "createfabric") == 0)
        properties.handle_types = DESCRIPTOR | FABRIC;
    if (strcmp(c->word[0], "createtiles") == 0)
        properties.more[1] = 1 << 16; // usage: CU_MEM_CREATE_USAGE_TILE_POOL
    struct name *n = lookup(c, 1, true);
    uint64_t handle = 0;
    if (strcmp(c->word[0], "createhost") == 0) {
        properties.location_type = (int)number_or(c, 3, 2);
        properties.location = 0;
    }
    CUresult r = CU(cuMemCreate)(&handle, number(c, 2), &properties, 0);
    if (r == 0)
        n->value = handle;
    answer(c, r, "");
}

static void do_releasemem(const struct command *c) {
    answer(c, CU(cuMemRelease)(lookup(c, 1, false)->value), "");
}

static void do_reserve(const struct command *c) {
    struct name *n = lookup(c, 1, true);
    answer(c, CU(cuMemAddressReserve)(&n->value, number(c, 2), 0, 0, 0), "");
}

static void do_map(const struct command *c) {
    CUdeviceptr p = lookup(c, 1, false)->value + number(c, 2);
    answer(c, CU(cuMemMap)(p, number(c, 3), 0, lookup(c, 4, false)->value, 0), "");
}

static void do_unmap(const struct command *c) {
    answer(c, CU(cuMemUnmap)(lookup(c, 1, false)->value + number(c, 2), number(c, 3)), "");
}

static void do_retain(const struct command *c) {
    void *p = (void *)(uintptr_t)(lookup(c, 2, false)->value + number(c, 3));
    answer(c, CU(cuMemRetainAllocationHandle)(&lookup(c, 1, true)->value, p), "");
}

// CUarrayMapInfo
struct map_info {
    int object_type;
    void *object;
    int part_type;
    union {
        struct {
            unsigned int level, layer, offset[3], extent[3];
        } level;
        struct {
            unsigned int layer;
            unsigned long long offset, size;
        } tail;
    } part;
    int operation, handle_type;
    uint64_t memory;
    unsigned long long offset;
    unsigned int devices, flags, reserved[2];
};

static CUresult map_array(const struct command *c, struct map_info *m, int at) {
    enum { MAP = 1, UNMAP = 2 };
    bool unmaps = strcmp(word(c, at), "-") == 0;
    m->object = (void *)(uintptr_t)lookup(c, 1, false)->value;
    m->operation = unmaps ? UNMAP : MAP;
    m->memory = unmaps ? 0 : lookup(c, at, false)->value;
    m->offset = number(c, at + 1);
    m->devices = 1u << device;
    return ends_with(c->word[0], "ptsz") ? CU(cuMemMapArrayAsync_ptsz)(m, 1, stream(c, at + 2))
                                         : CU(cuMemMapArrayAsync)(m, 1, stream(c, at + 2));
}

static void do_maptiles(const struct command *c) {
    struct map_info m = {.object_type = strncmp(c->word[0], "mip", 3) == 0};
    m.part.level.level = (unsigned)number(c, 2);
    m.part.level.layer = (unsigned)number(c, 3);
    for (int i = 0; i < 3; i++) {
        m.part.level.offset[i] = (unsigned)number(c, 4 + i);
        m.part.level.extent[i] = (unsigned)number(c, 7 + i);
    }
    answer(c, map_array(c, &m, 10), "");
}

static void do_maptail(const struct command *c) {
    struct map_info m = {.object_type = 1, .part_type = 1};
    m.part.tail.layer = (unsigned)number(c, 2);
    m.part.tail.offset = number(c, 3);
    m.part.tail.size = number(c, 4);
    answer(c, map_array(c, &m, 5), "");
}

static void do_multicast(const struct command *c) {
    const struct {
        unsigned int devices;
        size_t size;
        unsigned long long handle_types, flags;
    } p = {.devices = (unsigned)number(c, 2), .size = number(c, 3)};
    uint64_t handle = 0;
    CUresult r = CU(cuMulticastCreate)(&handle, &p);
    if (r == 0)
        lookup(c, 1, true)->value = handle;
    answer(c, r, "");
}

static void do_multicastadd(const struct command *c) {
    answer(c, CU(cuMulticastAddDevice)(lookup(c, 1, false)->value, (CUdevice)number(c, 2)), "");
}

static void do_bind(const struct command *c) {
    uint64_t object = lookup(c, 1, false)->value, what = lookup(c, 3, false)->value;
    size_t offset = number(c, 2), from = number(c, 4), size = number(c, 5);
    CUdevice on = (CUdevice)number_or(c, 6, 0);
    bool second = c->words > 6;
    CUresult r;
    if (strcmp(c->word[0], "bindmem") == 0)
        r = second ? CU(cuMulticastBindMem_v2)(object, on, offset, what, from, size, 0)
                   : CU(cuMulticastBindMem)(object, offset, what, from, size, 0);
    else
        r = second ? CU(cuMulticastBindAddr_v2)(object, on, offset, what + from, size, 0)
                   : CU(cuMulticastBindAddr)(object, offset, what + from, size, 0);
    answer(c, r, "");
}

static void do_unbind(const struct command *c) {
    answer(c,
           CU(cuMulticastUnbind)(lookup(c, 1, false)->value, (CUdevice)number(c, 2), number(c, 3),
                                 number(c, 4)),
           "");
}

const struct verb mappings_verbs[] = {
    {"create", do_create},
    {"createhost", do_create},
    {"createtiles", do_create},
    {"maptiles", do_maptiles},
    {"maptilesptsz", do_maptiles},
    {"mipmaptiles", do_maptiles},
    {"maptail", do_maptail},
    {"multicast", do_multicast},
    {"multicastadd", do_multicastadd},
    {"bindmem", do_bind},
    {"bindaddr", do_bind},
    {"unbind", do_unbind},
    {"releasemem", do_releasemem},
    {"reserve", do_reserve},
    {"map", do_map},
    {"unmap", do_unmap},
    {"retain", do_retain},
    {"createshared", do_create},
    {"createfabric", do_create},
    {NULL, NULL},
};
