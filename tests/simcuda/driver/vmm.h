// SPDX-License-Identifier: Apache-2.0
//
// Shared by the files on memory without an address. Everything is under drv.lock.
#ifndef SIMCUDA_VMM_H
#define SIMCUDA_VMM_H

#include "driver.h"

#define GRANULARITY (2ull << 20)

struct multicast;

struct memory {
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop;
    uint64_t size;
    int phys; // -1: host memory
    int fd;   // memory file, so that a second mapping shows the same bytes
    bool imported;
    uint64_t owner, object;  // serial of the owner, and its number there
    struct multicast *group; // set if it is a multicast object, which costs nothing itself
    unsigned refs, maps;     // refs: handles; maps: mappings and bindings
    struct memory *next, **at;
};

CUmemGenericAllocationHandle vmm_enlist(struct memory *m); // returns its handle
struct memory *vmm_memory(CUmemGenericAllocationHandle handle);
struct memory *vmm_mapped(CUdeviceptr p,
                          uint64_t *offset); // memory at an address, and the offset in it
void vmm_drop_map(struct memory *m);         // drops one of its maps
// multicast.c: ends a multicast object
void multicast_end(struct multicast *group);
bool multicast_is_whole(
    const struct multicast *group); // reports whether all its devices were added

#endif
