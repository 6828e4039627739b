// SPDX-License-Identifier: Apache-2.0
//
// Arrays that are made without memory. Arrays with deferred mapping are mapped as a whole, sparse
// arrays tile by tile, in stream order. A tile keeps the memory that it is mapped to. Tiles have
// the shapes that other interfaces document for 64 KiB. A mipmapped array's tail has the levels
// that are smaller than a tile. Copies of such arrays return an error.

#include "vmm.h"

#include <stdlib.h>
#include <string.h>

enum { TILE = 65536, WHOLE = -1, TAIL = -2 };

struct tile {
    uintptr_t object;
    CUcontext ctx;
    int level; // level, or WHOLE or TAIL
    unsigned layer, at[3];
    struct memory *memory;
    struct tile *next;
};

static struct tile *tiles; // under drv.lock

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
    CUmemGenericAllocationHandle memory;
    unsigned long long offset;
    unsigned devices, flags, reserved[2];
};
_Static_assert(sizeof(struct map_info) == 96, "of its size in cuda.h");

struct sparse_properties {
    unsigned tile[3], first_level;
    unsigned long long tail;
    unsigned flags, reserved[4];
};

enum { MAP = 1, UNMAP = 2, SINGLE_TAIL = 1 };

static void tile_extent(const struct sparse *s, unsigned out[3]) {
    static const unsigned flat[5][3] = {
        {256, 256, 1}, {256, 128, 1}, {128, 128, 1}, {128, 64, 1}, {64, 64, 1}};
    static const unsigned deep[5][3] = {
        {64, 32, 32}, {32, 32, 32}, {32, 32, 16}, {32, 16, 16}, {16, 16, 16}};
    unsigned i = 0;
    while (i < 4 && 1u << i < s->element)
        i++;
    memcpy(out, s->layered || s->size[2] <= 1 ? flat[i] : deep[i], 3 * sizeof *out);
}

static unsigned side(const struct sparse *s, unsigned level, int axis) {
    uint64_t n = axis == 2 && s->layered ? 1 : s->size[axis] >> level;
    return n ? (unsigned)n : 1;
}

static bool has_tiles(const struct sparse *s, const unsigned tile[3], unsigned level) {
    bool all = true;
    for (int i = 0; i < 3; i++)
        all = all && side(s, level, i) >= tile[i];
    return all;
}

static struct sparse_properties properties(const struct sparse *s) {
    struct sparse_properties p = {0};
    tile_extent(s, p.tile);
    while (p.first_level < s->levels && has_tiles(s, p.tile, p.first_level))
        p.first_level++;
    uint64_t tail = 0;
    for (unsigned level = p.first_level; level < s->levels; level++)
        tail += (uint64_t)side(s, level, 0) * side(s, level, 1) * side(s, level, 2) * s->element;
    p.tail = (tail + TILE - 1) / TILE * TILE;
    return p;
}

static CUresult tell(uintptr_t object, bool mipmap, struct sparse_properties *out) {
    struct sparse s;
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&drv.lock);
    CUresult rc = array_sparse(object, mipmap, &s);
    pthread_mutex_unlock(&drv.lock);
    if (!rc && s.whole)
        rc = CUDA_ERROR_INVALID_VALUE;
    if (!rc)
        *out = properties(&s);
    return rc;
}

EXPORT CUresult cuArrayGetSparseProperties(struct sparse_properties *out, uintptr_t array) {
    ENTER_CTX(ctx);
    (void)ctx;
    return tell(array, false, out);
}

EXPORT CUresult cuMipmappedArrayGetSparseProperties(struct sparse_properties *out,
                                                    uintptr_t mipmap) {
    ENTER_CTX(ctx);
    (void)ctx;
    return tell(mipmap, true, out);
}

// An operation of a stream: a box of tiles, from a corner on.
struct change {
    uintptr_t object;
    CUcontext ctx;
    int level;
    unsigned layer, from[3], count[3];
    struct memory *memory; // memory to map, with a reference; NULL: unmap
};

static bool tail_change(const struct sparse *s, const struct map_info *m, struct change *c) {
    struct sparse_properties p = properties(s);
    c->level = TAIL;
    c->layer = m->part.tail.layer;
    c->from[0] = (unsigned)(m->part.tail.offset / TILE);
    c->count[0] = (unsigned)(m->part.tail.size / TILE);
    c->count[1] = c->count[2] = 1;
    return s->levels > 1 && m->part.tail.offset % TILE == 0 && m->part.tail.size % TILE == 0 &&
           m->part.tail.size && m->part.tail.size <= p.tail &&
           m->part.tail.offset <= p.tail - m->part.tail.size && c->layer < s->layers;
}

// Checks a box of tiles. It must be aligned to tiles, except at the end of the level.
static bool level_change(const struct sparse *s, const struct map_info *m, struct change *c) {
    struct sparse_properties p = properties(s);
    const unsigned *offset = m->part.level.offset, *extent = m->part.level.extent;
    bool fits = m->part.level.level < p.first_level && m->part.level.layer < s->layers;
    c->level = (int)m->part.level.level;
    c->layer = m->part.level.layer;
    for (int i = 0; i < 3 && fits; i++) {
        unsigned most = side(s, m->part.level.level, i), unit = p.tile[i];
        fits = extent[i] && extent[i] <= most && offset[i] <= most - extent[i] &&
               offset[i] % unit == 0 && (extent[i] % unit == 0 || offset[i] + extent[i] == most);
        c->from[i] = offset[i] / unit;
        c->count[i] = (extent[i] + unit - 1) / unit;
    }
    return fits;
}

static CUresult read_change(const struct stream *stream, const struct map_info *m,
                            struct change *c) {
    enum { TYPE_ARRAY, TYPE_MIPMAP };
    struct sparse s;
    if ((m->object_type != TYPE_ARRAY && m->object_type != TYPE_MIPMAP) || m->handle_type ||
        m->flags || m->reserved[0] || m->reserved[1] || m->devices != 1u << stream->ctx->dev ||
        (m->operation != MAP && m->operation != UNMAP) || (m->operation == UNMAP && m->memory))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult rc = array_sparse(m->object, m->object_type == TYPE_MIPMAP, &s);
    if (rc)
        return rc;
    *c = (struct change){.object = m->object, .ctx = s.ctx, .level = WHOLE, .count = {1, 1, 1}};
    bool fits = s.whole || (m->part_type == 1   ? tail_change(&s, m, c)
                            : m->part_type == 0 ? level_change(&s, m, c)
                                                : false);
    if (!fits || m->operation == UNMAP)
        return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    uint64_t bytes = s.whole ? s.bytes : (uint64_t)TILE * c->count[0] * c->count[1] * c->count[2];
    c->memory = vmm_memory(m->memory);
    if (!c->memory || !(c->memory->prop.usage & MEM_TILE_POOL) || m->offset % TILE ||
        c->memory->phys != stream->ctx->phys || bytes > c->memory->size ||
        m->offset > c->memory->size - bytes)
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

static void set_tile(const struct change *c, const unsigned at[3]) {
    struct tile **q = &tiles;
    while (*q && ((*q)->object != c->object || (*q)->level != c->level || (*q)->layer != c->layer ||
                  memcmp((*q)->at, at, sizeof(*q)->at) != 0))
        q = &(*q)->next;
    struct tile *t = *q;
    if (t) {
        *q = t->next;
        vmm_drop_map(t->memory);
        free(t);
    }
    if (!c->memory || !(t = malloc(sizeof *t)))
        return;
    *t = (struct tile){c->object, c->ctx, c->level, c->layer, {at[0], at[1], at[2]},
                       c->memory, tiles};
    tiles = t;
    c->memory->maps++;
}

static void run(void *arg) {
    const struct change *c = arg;
    unsigned at[3];
    pthread_mutex_lock(&drv.lock);
    for (at[0] = c->from[0]; at[0] < c->from[0] + c->count[0]; at[0]++)
        for (at[1] = c->from[1]; at[1] < c->from[1] + c->count[1]; at[1]++)
            for (at[2] = c->from[2]; at[2] < c->from[2] + c->count[2]; at[2]++)
                set_tile(c, at);
    if (c->memory)
        vmm_drop_map(c->memory);
    pthread_mutex_unlock(&drv.lock);
}

// Maps all entries of the list, or none.
static CUresult map_arrays(struct context *ctx, const struct map_info *list, unsigned count,
                           CUstream handle) {
    struct stream *s;
    if (!list || !count)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult rc = queue_find(ctx, handle, &s);
    if (rc)
        return rc;
    struct change *changes = calloc(count, sizeof *changes);
    if (capture_is_on(s))
        rc = capture_refuse(s);
    else if (!changes)
        rc = CUDA_ERROR_OUT_OF_MEMORY;
    else
        rc = capture_implicit(s);
    pthread_mutex_lock(&drv.lock);
    for (unsigned i = 0; i < count && !rc; i++)
        rc = read_change(s, &list[i], &changes[i]);
    for (unsigned i = 0; i < count && !rc; i++) {
        if (changes[i].memory)
            changes[i].memory->maps++;
        rc = queue_add(s, run, &changes[i], sizeof changes[i], NULL, NULL);
    }
    pthread_mutex_unlock(&drv.lock);
    queue_kick(s);
    queue_unref(s);
    free(changes);
    return rc;
}

BOTH(cuMemMapArrayAsync, _ptsz, (const struct map_info *list, unsigned count, CUstream hStream),
     map_arrays(ctx, list, count, s))

// Drops the memory that an array's tiles keep, when the array ends. That is not documented, but the
// program could not unmap the tiles later.
static void drop(uintptr_t object, CUcontext ctx) {
    for (struct tile **q = &tiles; *q;) {
        struct tile *t = *q;
        if (t->object != object && (!ctx || t->ctx != ctx)) {
            q = &t->next;
            continue;
        }
        *q = t->next;
        vmm_drop_map(t->memory);
        free(t);
    }
}

void sparse_drop(uintptr_t object) {
    drop(object, 0);
}

void sparse_release_context(const struct context *ctx) {
    drop(0, ctx->handle);
}
