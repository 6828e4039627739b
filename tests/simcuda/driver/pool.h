// SPDX-License-Identifier: Apache-2.0
//
// A pool of memory in stream order, for what allocates from it and what hands it to other
// processes.
#ifndef SIMCUDA_POOL_H
#define SIMCUDA_POOL_H

#include "driver.h"

enum { POOL_HANDLE_FD = 1 };
enum { POOL_ANYWHERE = -1, POOL_ON_HOST = -2 };

// All under drv.lock.
struct pool {
    CUmemoryPool handle;
    int phys; // or POOL_ANYWHERE: where it is used first (managed memory); or POOL_ON_HOST, which
              // keeps nothing
    bool is_default;
    bool dying;      // destroyed, but blocks of it live on
    bool exportable; // keeps what it has to its end
    bool imported;   // another process's, by its serial and as that process calls it
    uint64_t owner, original;
    int reuse[3];
    uint64_t threshold;
    uint64_t most;        // bytes in blocks, or 0: as many as there are
    uint64_t idle, used;  // bytes: freed and kept, in blocks
    struct chunk *chunks; // where pools are made of them
    uint64_t blocks;
    uint64_t reserved_high, used_high;
    uint32_t shown_to;              // bits, of devices that may use it beside its own
    struct block *late, **late_end; // frees on their way, the oldest first
    struct pool *next;
};

struct pool *pool_new(int phys);
void pool_note_high(struct pool *p);

// chunk.c
uint64_t chunk_round(uint64_t size);                              // to granules
bool chunk_take(struct pool *p, uint64_t size, struct spot *out); // a piece of what is there
bool chunk_add(struct pool *p, uint64_t size);                    // one more
void chunk_give(struct spot where, uint64_t size);                // a block is no more
uint64_t chunk_trim(struct pool *p, uint64_t most);               // up to so many bytes
uint64_t chunk_remappable(const struct pool *p, uint64_t most);
void chunk_remap(struct pool *p, uint64_t bytes); // these become part of another one

// poolshare.c
void pool_return(struct pool *p, const struct block *b); // an imported block is freed

#endif
