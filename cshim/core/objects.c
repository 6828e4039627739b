// SPDX-License-Identifier: Apache-2.0
// Counts in the table root.objects, with one entry for each device and thread, and in
// ga_device.streams.
#include "core/objects.h"

// Layout of an entry of root->objects. Low bits of its bytes: contexts. Above them: streams, if
// slots are counted by thread. Its context: holds.
#define STREAM (1ull << 24)
#define FIELD (STREAM - 1)

static uint64_t key_of(uint32_t device, uint32_t maker) {
    return 1ull << 40 | (uint64_t)maker << 8 | device;
}

static uint64_t field(uint64_t now, int32_t count) {
    int64_t next = (int64_t)now + count;
    return next < 0                 ? 0
           : (uint64_t)next > FIELD ? FIELD
                                    : (uint64_t)next; // no driver makes more than FIELD
}

// Changes the count of a thread. Returns by how much the count would have become negative.
static int32_t change(struct ga_root *root, enum ga_object what, uint32_t device, uint32_t maker,
                      int32_t count) {
    struct ga_entry e;
    struct ga_entry old;
    uint16_t tag = atomic_load(&root->tag);
    if (!ga_table_remove(&root->objects, key_of(device, maker), &e) || e.tag != tag)
        e = (struct ga_entry){.key = key_of(device, maker), .tag = tag, .device = (uint8_t)device};
    uint64_t contexts = e.bytes & FIELD;
    uint64_t streams = e.bytes / STREAM;
    uint64_t *of = what == GA_OBJECT_CONTEXT  ? &contexts
                   : what == GA_OBJECT_STREAM ? &streams
                                              : &e.context;
    int64_t left = (int64_t)*of + count;
    *of = field(*of, count);
    e.bytes = streams * STREAM + contexts;
    if (e.bytes || e.context)
        ga_table_put(&root->objects, &e,
                     &old); // without memory for it the next daemon is not told of it
    return left < 0 ? (int32_t)-left : 0;
}

// Changes the count of streams that belong to no thread. The count cannot become negative.
static void count_streams(struct ga_root *root, uint32_t device, int32_t count) {
    _Atomic uint32_t *streams = &root->devices[device].streams;
    uint32_t now = atomic_load(streams);
    while (!atomic_compare_exchange_weak(streams, &now, (uint32_t)field(now, count))) {
    }
}

void ga_objects_add(struct ga_root *root, enum ga_object what, uint32_t device, uint32_t maker,
                    int32_t count) {
    bool threads = atomic_load(&root->slot_scope[device]) == GA_SCOPE_THREAD;
    if (what == GA_OBJECT_STREAM &&
        !threads) { // without a lock, because programs create streams in loops
        count_streams(root, device, count);
        return;
    }
    ga_spin_lock(&root->objects_lock);
    int32_t missing = change(root, what, device, threads ? maker : 0, count);
    if (missing && what != GA_OBJECT_STREAM && threads)
        change(root, what, device, 0, -missing); // counted before a daemon said whose the slots are
    ga_spin_unlock(&root->objects_lock);
    if (missing && what == GA_OBJECT_STREAM)
        count_streams(root, device, -missing);
}

uint16_t ga_objects_type(enum ga_object what) {
    return what == GA_OBJECT_STREAM ? GA_TYPE_STREAM : GA_TYPE_CONTEXT;
}

// Fills in the request. Stream requests and context requests have one layout.
struct ga_wire_context_request ga_objects_request(enum ga_object what, int32_t count,
                                                  uint32_t flags, uint32_t maker) {
    _Static_assert(sizeof(struct ga_wire_context_request) == sizeof(struct ga_wire_stream_request),
                   "and both have slot, count, flags, thread");
    flags |= what == GA_OBJECT_THREAD_SLOT ? GA_FLAG_HOLD : 0;
    return (struct ga_wire_context_request){.count = count, .flags = flags, .thread = maker};
}

struct ga_objects_sum ga_objects_sum(struct ga_root *root, uint32_t device) {
    struct ga_objects_sum sum = {.streams = atomic_load(&root->devices[device].streams)};
    uint16_t tag = atomic_load(&root->tag);
    struct ga_entry e;
    struct ga_walk walk = ga_self_walk(&root->objects);
    while (ga_self_next(&walk, &e)) {
        if (e.tag != tag || e.device != device)
            continue;
        sum.contexts += (uint32_t)(e.bytes & FIELD);
        sum.streams += (uint32_t)(e.bytes / STREAM);
    }
    return sum;
}

void ga_objects_list(struct ga_root *root, uint32_t device, uint32_t skip,
                     struct ga_wire_objects_request *list) {
    uint32_t streams = atomic_load(&root->devices[device].streams);
    uint16_t tag = atomic_load(&root->tag);
    struct ga_entry e;
    ga_os_zero(list, sizeof *list);
    if (streams && skip == 0)
        list->makers[list->count++] = (struct ga_wire_objects_maker){.streams = streams};
    else if (streams)
        skip--;
    struct ga_walk walk = ga_self_walk(&root->objects);
    while (ga_self_next(&walk, &e)) {
        if (e.tag != tag || e.device != device)
            continue;
        if (skip > 0)
            skip--;
        else if (list->count == GA_OBJECTS_MAKERS)
            list->flags = GA_OBJECTS_MORE;
        else
            list->makers[list->count++] =
                (struct ga_wire_objects_maker){.thread = (uint32_t)(e.key >> 8),
                                               .contexts = (uint32_t)(e.bytes & FIELD),
                                               .streams = (uint32_t)(e.bytes / STREAM),
                                               .holds = (uint32_t)e.context};
    }
}
