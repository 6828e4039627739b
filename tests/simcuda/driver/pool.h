// SPDX-License-Identifier: Apache-2.0
//
// A pool of stream-ordered memory. Shared by the files that allocate from pools, and that export
// them.
#ifndef SIMCUDA_POOL_H
#define SIMCUDA_POOL_H

#include "driver.h"

enum { POOL_HANDLE_FD = 1 };
enum { POOL_ANYWHERE = -1, POOL_ON_HOST = -2 };

// All under drv.lock.
struct pool {
    CUmemoryPool handle;
    int phys; // or POOL_ANYWHERE: where it is first used (managed memory); or POOL_ON_HOST, which
              // keeps nothing
    bool is_default;
    bool dying;      // destroyed, but it still has blocks
    bool exportable; // keeps its memory until its end
    bool imported;   // from another process: owner is its serial, original the pool's number there
    uint64_t owner, original;
    int reuse[3];
    uint64_t threshold;
    uint64_t most;        // maximum of bytes in blocks; 0: none
    uint64_t idle, used;  // bytes that are kept unused, and bytes in blocks
    struct chunk *chunks; // used if pools are made of chunks
    uint64_t blocks;
    uint64_t reserved_high, used_high;
    uint32_t shown_to;                    // bits of the other devices that may use it
    struct block *pending, **pending_end; // pending frees, the oldest first
    struct pool *next;
};

struct pool *pool_new(int phys);
void pool_note_high(struct pool *p);

// chunk.c
uint64_t chunk_round(uint64_t size); // rounds up to whole granules
bool chunk_take(struct pool *p, uint64_t size,
                struct chunk_place *out);                 // takes a piece of an existing chunk
bool chunk_add(struct pool *p, uint64_t size);            // adds a chunk
void chunk_give(struct chunk_place where, uint64_t size); // frees a block
uint64_t chunk_trim(struct pool *p, uint64_t most);       // gives back at most this many bytes
uint64_t chunk_remappable(const struct pool *p, uint64_t most);
void chunk_remap(struct pool *p, uint64_t bytes); // makes these bytes part of another chunk

// poolshare.c
void pool_return(struct pool *p, const struct block *b); // frees an imported block

#endif
