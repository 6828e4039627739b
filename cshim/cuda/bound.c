// SPDX-License-Identifier: Apache-2.0
#include "cuda/bound.h"

#include "core/records.h"
#include "cuda/context.h"
#include "cuda/pending.h"
#include "cuda/state.h"

// A part of an object: on one plane (a level and layer of an array, its mip tail, a device of a
// multicast object) from one corner to the other, which lies outside.
struct part {
    uint64_t plane;
    uint64_t from[3], to[3];
};

// A part that memory is mapped to, and keeps.
struct piece {
    struct part part;
    struct ga_cuda_vmm_memory *memory;
    struct piece *next;
};

struct ga_cuda_bound {
    struct ga_key key;
    uint64_t context;
    bool whole;
    struct piece *pieces;
    struct ga_cuda_bound *next; // about to end
};

// Lets go of what pieces keep, in one of the two ways.
static void let_go(struct ga_root *root, struct ga_cuda_bounds *b, struct piece *pieces,
                   void (*drop)(struct ga_root *, struct ga_cuda_vmm_memory *)) {
    while (pieces) {
        struct piece *p = pieces;
        pieces = p->next;
        drop(root, p->memory);
        ga_records_give(&b->unused_pieces, p);
    }
}

static struct ga_cuda_bound *pointer_of(const struct ga_entry *e) {
    return (struct ga_cuda_bound *)(uintptr_t)e->bytes;
}

void ga_cuda_bound_end(struct ga_root *root, struct ga_cuda_bound *bound) {
    struct ga_cuda_bounds *b = &ga_cuda(root)->bounds;
    if (!bound)
        return;
    ga_self_lock(&b->lock);
    struct piece *pieces = bound->pieces;
    ga_self_unlock(&b->lock);
    ga_records_give(&b->unused, bound);
    let_go(root, b, pieces, ga_cuda_vmm_let_go);
}

void ga_cuda_bound_put_back(struct ga_root *root, struct ga_cuda_bound *bound, uint64_t epoch) {
    struct ga_cuda_bounds *b = &ga_cuda(root)->bounds;
    if (!bound)
        return;
    struct ga_entry old = {0};
    struct ga_entry e = {.key = bound->key.number,
                         .space = bound->key.space,
                         .bytes = (uint64_t)(uintptr_t)bound,
                         .context = bound->context};
    ga_self_lock(&b->lock);
    ga_table_put(&b->objects, &e, &old); // without memory for it, what is mapped there stays kept
    ga_self_unlock(&b->lock);
    if (old.key) // ended out of our sight
        ga_cuda_bound_end(root, pointer_of(&old));
    ga_cuda_context_check(root, e.context, epoch);
}

void ga_cuda_bound_begin(struct ga_root *root, struct ga_key key, uint64_t context, bool whole,
                         uint64_t epoch) {
    struct ga_cuda_bounds *b = &ga_cuda(root)->bounds;
    struct ga_cuda_bound *bound = ga_records_take(root, &b->unused, sizeof *bound);
    if (!bound)
        return;
    *bound = (struct ga_cuda_bound){.key = key, .context = context, .whole = whole};
    ga_cuda_bound_put_back(root, bound, epoch);
}

struct ga_cuda_bound *ga_cuda_bound_take(struct ga_root *root, struct ga_key key) {
    struct ga_cuda_bounds *b = &ga_cuda(root)->bounds;
    struct ga_entry e;
    ga_self_lock(&b->lock);
    bool found = ga_table_take_key(&b->objects, key, &e);
    ga_self_unlock(&b->lock);
    return found ? pointer_of(&e) : NULL;
}

void ga_cuda_bound_sweep(struct ga_root *root, uint64_t serial) {
    struct ga_cuda_bounds *b = &ga_cuda(root)->bounds;
    struct ga_cuda_bound *gone = NULL;
    struct ga_entry e;
    ga_self_lock(&b->lock);
    struct ga_walk walk = ga_table_walk(&b->objects);
    while (ga_table_take_next(&walk, serial, &e)) {
        pointer_of(&e)->next = gone;
        gone = pointer_of(&e);
    }
    ga_self_unlock(&b->lock);
    while (gone) {
        struct ga_cuda_bound *bound = gone;
        gone = bound->next;
        ga_cuda_bound_end(root, bound);
    }
}

// Parts

static bool overlaps(const struct part *a, const struct part *b) {
    bool all = a->plane == b->plane;
    for (int i = 0; i < 3; i++)
        all = all && a->from[i] < b->to[i] && b->from[i] < a->to[i];
    return all;
}

// What is left of a part without another that overlaps it: up to six of them.
static int remainder_of(struct part left, const struct part *without, struct part out[6]) {
    int count = 0;
    for (int i = 0; i < 3; i++) {
        if (left.from[i] < without->from[i]) {
            out[count] = left;
            out[count++].to[i] = without->from[i];
            left.from[i] = without->from[i];
        }
        if (left.to[i] > without->to[i]) {
            out[count] = left;
            out[count++].from[i] = without->to[i];
            left.to[i] = without->to[i];
        }
    }
    return count;
}

// Memory that is kept for it is mapped to a part. Without memory for the record, it stays kept.
static void map(struct ga_root *root, struct ga_cuda_bounds *b, struct ga_cuda_bound *bound,
                const struct part *part, struct ga_cuda_vmm_memory *memory) {
    struct piece *p = ga_records_take(root, &b->unused_pieces, sizeof *p);
    if (!p)
        return;
    *p = (struct piece){.part = *part, .memory = memory};
    ga_self_lock(&b->lock);
    p->next = bound->pieces;
    bound->pieces = p;
    ga_self_unlock(&b->lock);
}

// Puts what is left of a piece in its object.
static void keep_remainder(struct ga_root *root, struct ga_cuda_bounds *b,
                           struct ga_cuda_bound *bound, const struct piece *cut,
                           const struct part *without) {
    struct part left[6];
    int count = remainder_of(cut->part, without, left);
    for (int i = 0; i < count; i++) {
        ga_cuda_vmm_keep_more(root, cut->memory);
        map(root, b, bound, &left[i], cut->memory);
    }
}

static struct ga_cuda_bound *bound_of(struct ga_cuda_bounds *b, struct ga_key key) {
    struct ga_entry e;
    ga_self_lock(&b->lock);
    bool found = ga_table_find_key(&b->objects, key, &e);
    ga_self_unlock(&b->lock);
    return found ? pointer_of(&e) : NULL;
}

// Takes out what is mapped to a part; the pieces keep it still. Two threads that change what one
// object maps to, at once, the driver has to put in an order; here each piece goes once.
static struct piece *unmap(struct ga_root *root, struct ga_cuda_bounds *b,
                           struct ga_cuda_bound *bound, const struct part *part,
                           struct piece *gone) {
    struct piece *cut = NULL;
    ga_self_lock(&b->lock);
    for (struct piece **at = &bound->pieces; *at;) {
        struct piece *p = *at;
        if (!overlaps(&p->part, part)) {
            at = &p->next;
            continue;
        }
        *at = p->next;
        p->next = cut;
        cut = p;
    }
    ga_self_unlock(&b->lock);
    while (cut) {
        struct piece *p = cut;
        cut = p->next;
        keep_remainder(root, b, bound, p, part);
        p->next = gone;
        gone = p;
    }
    return gone;
}

// Arrays

static struct ga_key key_of(const struct ga_cu_array_map *m) {
    bool mipmap = m->object_type == GA_CUDA_MAP_MIPMAP;
    return (struct ga_key){(uint64_t)(uintptr_t)m->object,
                           mipmap ? GA_SPACE_CUDA_MIPMAP : GA_SPACE_CUDA_ARRAY};
}

static struct part part_of(const struct ga_cu_array_map *m, bool whole) {
    struct part p = {.to = {UINT64_MAX, UINT64_MAX, UINT64_MAX}};
    if (whole)
        return p;
    if (m->part_type == GA_CUDA_MAP_TAIL) {
        p.plane = 1ull << 63 | m->tail.layer;
        p.from[0] = m->tail.offset;
        p.to[0] = m->tail.offset + m->tail.bytes;
        return p;
    }
    p.plane = (uint64_t)m->level.level << 32 | m->level.layer;
    for (int i = 0; i < 3; i++) {
        p.from[i] = m->level.offset[i];
        p.to[i] = (uint64_t)m->level.offset[i] + m->level.extent[i];
    }
    return p;
}

// What a call maps, kept before the driver is asked: for each of the list, or NULL. NULL: there is
// no memory to remember it by.
static struct ga_cuda_vmm_memory **
keep_all(struct ga_root *root, const struct ga_cu_array_map *list, unsigned int count) {
    struct ga_cuda_vmm_memory **kept = ga_os_map(count * sizeof *kept);
    for (unsigned int i = 0; kept && i < count; i++)
        if (list[i].operation == GA_CUDA_MAP_MAP)
            kept[i] = ga_cuda_vmm_keep(root, list[i].memory);
    return kept;
}

static void let_go_all(struct ga_root *root, struct ga_cuda_vmm_memory **kept, unsigned int count) {
    for (unsigned int i = 0; i < count; i++)
        if (kept[i])
            ga_cuda_vmm_let_go(root, kept[i]);
}

// The stream has passed what unmapped these.
static void unmapped(struct ga_root *root, void *argument) {
    let_go(root, &ga_cuda(root)->bounds, argument, ga_cuda_vmm_left);
}

static void note_all(struct ga_root *root, struct ga_cuda_vmm_memory **kept,
                     const struct ga_cu_array_map *list, unsigned int count,
                     const struct ga_cuda_at *at) {
    struct ga_cuda_bounds *b = &ga_cuda(root)->bounds;
    struct piece *gone = NULL;
    for (unsigned int i = 0; i < count; i++) {
        struct ga_cuda_bound *bound = bound_of(b, key_of(&list[i]));
        if (!bound)
            continue; // not known to take memory later: what is mapped there stays kept
        struct part part = part_of(&list[i], bound->whole);
        gone = unmap(root, b, bound, &part, gone);
        if (kept[i])
            map(root, b, bound, &part, kept[i]);
    }
    for (struct piece *p = gone; p; p = p->next)
        ga_cuda_vmm_leave(root, p->memory);
    if (gone)
        ga_cuda_pending_call(root, at, unmapped, gone);
}

ga_result ga_cuda_bound_map(GA_FN_cuMemMapArrayAsync *real, ga_stream effective,
                            struct ga_cu_array_map *list, unsigned int count, ga_stream stream) {
    struct ga_root *root = ga_root_get();
    if (!root || !list || count == 0)
        return real(list, count, stream);
    struct ga_cuda_vmm_memory **kept = keep_all(root, list, count);
    if (!kept)
        return GA_CUDA_OUT_OF_MEMORY;
    struct ga_cuda_at at = ga_cuda_pending_at(root, effective);
    ga_result result = real(list, count, stream);
    if (result == GA_CUDA_SUCCESS)
        note_all(root, kept, list, count, &at);
    else
        let_go_all(root, kept, count);
    ga_os_unmap(kept, count * sizeof *kept);
    return result;
}

// Multicast objects

static struct part part_at(ga_cu_device device, size_t offset, size_t bytes) {
    return (struct part){.plane = (uint64_t)(uint32_t)device,
                         .from = {offset},
                         .to = {(uint64_t)offset + bytes, 1, 1}};
}

void ga_cuda_bound_open(struct ga_cuda_binding *b, ga_memory object, ga_cuda_vmm_keeper *keep,
                        uint64_t memory) {
    b->root = ga_root_get();
    b->object = ga_cuda_vmm_keep(b->root, object);
    b->memory = keep ? keep(b->root, memory) : NULL;
}

static void object_ended(struct ga_root *root, struct ga_key key) {
    ga_cuda_bound_end(root, ga_cuda_bound_take(root, key));
}

// As with arrays, memory that is bound to what is not known stays kept.
ga_result ga_cuda_bound_settle(const struct ga_cuda_binding *b, ga_result result,
                               ga_cu_device device, size_t offset, size_t bytes) {
    struct ga_cuda_bounds *all = b->object && b->memory ? &ga_cuda(b->root)->bounds : NULL;
    struct ga_key key = b->object ? ga_cuda_vmm_key(b->object) : (struct ga_key){0};
    if (b->memory && result != GA_CUDA_SUCCESS)
        ga_cuda_vmm_let_go(b->root, b->memory);
    if (all && result == GA_CUDA_SUCCESS) {
        if (device == GA_CUDA_BOUND_WHERE_IT_IS)
            device = ga_cuda_vmm_ordinal(b->root, b->memory);
        if (!bound_of(all, key)) {
            ga_cuda_bound_begin(b->root, key, 0, false, 0);
            ga_cuda_vmm_at_end(b->root, b->object, object_ended);
        }
        struct ga_cuda_bound *bound = bound_of(all, key);
        struct part part = part_at(device, offset, bytes);
        if (bound)
            map(b->root, all, bound, &part, b->memory);
    }
    if (b->object)
        ga_cuda_vmm_let_go(b->root, b->object);
    return result;
}

ga_result ga_cuda_multicast_unbind(GA_FN_cuMulticastUnbind *real, ga_memory object,
                                   ga_cu_device device, size_t offset, size_t bytes) {
    struct ga_cuda_binding b;
    ga_cuda_bound_open(&b, object, NULL, 0);
    struct ga_cuda_bounds *all = b.object ? &ga_cuda(b.root)->bounds : NULL;
    ga_result result = real(object, device, offset, bytes);
    struct ga_cuda_bound *bound =
        all && result == GA_CUDA_SUCCESS ? bound_of(all, ga_cuda_vmm_key(b.object)) : NULL;
    struct part part = part_at(device, offset, bytes);
    if (bound)
        let_go(b.root, all, unmap(b.root, all, bound, &part, NULL), ga_cuda_vmm_let_go);
    if (b.object)
        ga_cuda_vmm_let_go(b.root, b.object);
    return result;
}
