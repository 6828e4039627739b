// SPDX-License-Identifier: Apache-2.0
//
// What the files about memory without an address share. All of it is under drv.lock.
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
    int fd;   // what backs it, so that a second mapping shows the same bytes
    bool imported;
    uint64_t owner, object;  // whose it is, and as that process calls it
    struct multicast *group; // it is a multicast object, which costs nothing itself
    unsigned refs, maps;     // maps: wherever it is mapped or bound to
    struct memory *next, **at;
};

CUmemGenericAllocationHandle vmm_enlist(struct memory *m); // its handle
struct memory *vmm_memory(CUmemGenericAllocationHandle handle);
struct memory *vmm_mapped(CUdeviceptr p, uint64_t *offset); // at that address; how far inside
void vmm_let_go(struct memory *m);                          // one of its maps
// multicast.c: it is gone.
void multicast_end(struct multicast *group);
bool multicast_is_whole(const struct multicast *group); // all its devices are there

#endif
