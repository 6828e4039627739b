// SPDX-License-Identifier: Apache-2.0
//
// Pools made of chunks (SIMCUDA_POOL_GRANULE). A chunk is a multiple of the granule, and is made
// for its first block. The rest of the chunk, and freed blocks, are pieces. A new block takes a
// piece that is large enough. Pieces of two chunks cannot be joined, so a pool may take more device
// memory although it keeps enough bytes. A chunk without blocks can be given back.
//
// NVIDIA's programming guide says that the driver may remap memory of a pool. With
// SIMCUDA_POOL_REMAP, whole granules of chunks without a block become part of another chunk, as
// driver 580 does on an H200.

#include "pool.h"

#include <stdlib.h>

struct piece {
    uint64_t at, size;
    struct piece *next; // pieces are in order of address, and do not touch each other
};

struct chunk {
    uint64_t size;
    struct piece *pieces;
    struct chunk *next;
};

static bool is_free(const struct chunk *c) {
    return c->pieces && c->pieces->size == c->size;
}

uint64_t chunk_round(uint64_t size) {
    uint64_t granule = drv.sim->config.pool_granule;
    return (size + granule - 1) / granule * granule;
}

// Cuts the first bytes off a piece.
static void cut(struct piece **at, uint64_t size) {
    struct piece *piece = *at;
    piece->at += size;
    piece->size -= size;
    if (piece->size)
        return;
    *at = piece->next;
    free(piece);
}

bool chunk_take(struct pool *p, uint64_t size, struct chunk_place *out) {
    struct piece **best = NULL;
    for (struct chunk *c = p->chunks; c; c = c->next)
        for (struct piece **at = &c->pieces; *at; at = &(*at)->next)
            if ((*at)->size >= size && (!best || (*at)->size < (*best)->size)) {
                best = at;
                *out = (struct chunk_place){c, (*at)->at};
            }
    if (best)
        cut(best, size);
    return best != NULL;
}

bool chunk_add(struct pool *p, uint64_t size) {
    struct chunk *c = calloc(1, sizeof *c);
    struct piece *piece = calloc(1, sizeof *piece);
    if (!c || !piece) {
        free(c);
        free(piece);
        return false;
    }
    *piece = (struct piece){.size = size};
    *c = (struct chunk){.size = size, .pieces = piece, .next = p->chunks};
    p->chunks = c;
    return true;
}

void chunk_give(struct chunk_place where, uint64_t size) {
    struct piece **at = &where.chunk->pieces;
    while (*at && (*at)->at < where.at)
        at = &(*at)->next;
    struct piece *piece = calloc(1, sizeof *piece);
    if (!piece)
        abort();
    *piece = (struct piece){where.at, size, *at};
    *at = piece;
    struct piece *q = where.chunk->pieces;
    for (struct piece *next = q->next; next; next = q->next) {
        if (q->at + q->size != next->at) {
            q = next;
            continue;
        }
        q->size += next->size;
        q->next = next->next;
        free(next);
    }
}

static void drop(struct chunk **at) {
    struct chunk *c = *at;
    *at = c->next;
    free(c->pieces);
    free(c);
}

uint64_t chunk_trim(struct pool *p, uint64_t most) {
    uint64_t gone = 0;
    for (struct chunk **at = &p->chunks; *at;) {
        if (is_free(*at) && (*at)->size <= most - gone) {
            gone += (*at)->size;
            drop(at);
        } else {
            at = &(*at)->next;
        }
    }
    return gone;
}

uint64_t chunk_remappable(const struct pool *p, uint64_t most) {
    uint64_t sum = 0;
    for (const struct chunk *c = p->chunks; c && drv.sim->config.pool_remap; c = c->next)
        sum += is_free(c) ? c->size : 0;
    return sum < most ? sum : most;
}

void chunk_remap(struct pool *p, uint64_t bytes) {
    for (struct chunk **at = &p->chunks; *at && bytes;) {
        struct chunk *c = *at;
        uint64_t take = c->size < bytes ? c->size : bytes;
        if (!is_free(c)) {
            at = &c->next;
            continue;
        }
        bytes -= take;
        c->size -= take;
        c->pieces->size -= take;
        if (c->size == 0)
            drop(at);
    }
}
