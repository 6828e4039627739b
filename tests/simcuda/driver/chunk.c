// SPDX-License-Identifier: Apache-2.0
//
// Pools made of chunks (SIMCUDA_POOL_GRANULE). A chunk is a multiple of the granule, made for the
// first block that lies in it; what that leaves, and what is freed, are pieces, of which a block
// takes one that is large enough. Pieces of two chunks make no larger one, so a pool may take more
// of its device though it keeps enough bytes. A chunk goes back when no block is in it.
//
// NVIDIA's programming guide says that the driver may remap memory that a pool keeps, so that this
// need not be: with SIMCUDA_POOL_REMAP whole granules of chunks without a block become part of
// another chunk, as driver 580 does on an H200.

#include "pool.h"

#include <stdlib.h>

struct piece {
    uint64_t at, size;
    struct piece *next; // they are in order, and none touches the next
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

// Takes the beginning of a piece.
static void cut(struct piece **at, uint64_t size) {
    struct piece *piece = *at;
    piece->at += size;
    piece->size -= size;
    if (piece->size)
        return;
    *at = piece->next;
    free(piece);
}

bool chunk_take(struct pool *p, uint64_t size, struct spot *out) {
    struct piece **best = NULL;
    for (struct chunk *c = p->chunks; c; c = c->next)
        for (struct piece **at = &c->pieces; *at; at = &(*at)->next)
            if ((*at)->size >= size && (!best || (*at)->size < (*best)->size)) {
                best = at;
                *out = (struct spot){c, (*at)->at};
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

void chunk_give(struct spot where, uint64_t size) {
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
