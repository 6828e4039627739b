// SPDX-License-Identifier: Apache-2.0
// Counts streams (stream.h), in the table ga_root.streams.
#include "cuda/stream.h"

#include "cuda/allocation.h"
#include "cuda/capture.h"
#include "cuda/context.h"
#include "memory/pending.h"

// Asks the daemon for a stream on a device; −1: the device is not arbitrated. False: refused.
static bool ask_on(struct ga_allocation *c, int device) {
    if (device < 0) {
        c->root = NULL;
        return true;
    }
    struct ga_entry *e = &c->entry;
    e->bytes = ga_self.number;
    e->device = (uint8_t)device;
    if (!ga_admit_object(c->root, GA_OBJECT_STREAM, e->device, 0, &e->tag))
        return false;
    c->epoch = ga_cuda_context_epoch(c->root);
    return true;
}

bool ga_cuda_stream_open(struct ga_allocation *c) {
    c->entry.context = 0;
    if (!ga_allocation_begin(c))
        return false;
    int device = c->root ? ga_cuda_device_current(c->root, &c->entry.context) : -1;
    c->entry.kind = ga_self.stands_for ? GA_CUDA_STREAM_GREEN : GA_CUDA_STREAM_PLAIN;
    return ask_on(c, device);
}

bool ga_cuda_stream_open_green(struct ga_allocation *c, ga_green green) {
    struct ga_entry on;
    if (!ga_allocation_begin(c))
        return false;
    bool known = c->root && ga_cuda_context_find_green(c->root, green, &on);
    c->entry.context =
        known ? on.context : 0; // a green context's streams are charged in the primary context
    c->entry.kind = GA_CUDA_STREAM_GREEN;
    return ask_on(c, known ? on.device : -1);
}

static void release_streams(struct ga_root *root, const struct ga_entry *entry, int32_t count) {
    ga_admit_return(root, GA_OBJECT_STREAM, entry->device, count, (uint32_t)entry->bytes,
                    entry->tag);
}

ga_result ga_cuda_stream_created(struct ga_allocation *c, ga_result result,
                                 const ga_stream *stream) {
    struct ga_entry old;
    if (!c->root)
        return result;
    if (result != GA_CUDA_SUCCESS) {
        release_streams(c->root, &c->entry, 1);
        return result;
    }
    c->entry.key = (uint64_t)(uintptr_t)*stream;
    c->entry.space = GA_SPACE_PLAIN;
    bool put = ga_self_put(&c->root->streams, &c->entry, &old);
    // If there is no memory for its entry, the stream is destroyed again. If the driver refuses
    // that, the stream stays counted.
    if (!put && GA_ASK(cuStreamDestroy_v2, *stream)) {
        release_streams(c->root, &c->entry, 1);
        return GA_CUDA_OUT_OF_MEMORY;
    }
    if (old.key) // destroyed by a call that the library has not seen
        release_streams(c->root, &old, 1);
    ga_cuda_context_check(c->root, c->entry.context, c->epoch);
    return result;
}

// Removes the entry before the driver is called, because the driver may hand out the handle again
// at once.
ga_result ga_cuda_stream_destroy(GA_FN_cuStreamDestroy_v2 *real, ga_stream stream) {
    struct ga_root *root = ga_root_get();
    struct ga_entry entry;
    struct ga_entry old;
    if (!root)
        return real(stream);
    uint64_t epoch = ga_cuda_context_epoch(root);
    ga_memory_pending_detach_stream(root, stream);
    bool ours = ga_self_remove(&root->streams, (uint64_t)(uintptr_t)stream, &entry);
    ga_result result = real(stream);
    if (!ours)
        return result;
    if (result == GA_CUDA_SUCCESS) {
        release_streams(root, &entry, 1);
        return result;
    }
    ga_self_put(&root->streams, &entry, &old);
    ga_cuda_context_check(root, entry.context, epoch);
    return result;
}

#define BATCH 64
struct batch {
    uint32_t count;
    struct ga_entry entry[BATCH];
};

// Releases those streams of a batch that are still in the table, with one request for each thread
// that made streams.
static void release_batch(struct ga_root *root, struct batch *b) {
    for (uint32_t i = 0; i < b->count; i++) {
        if (!ga_self_remove(&root->streams, b->entry[i].key, &b->entry[i]))
            b->entry[i].key = 0;
    }
    for (uint32_t i = 0; i < b->count; i++) {
        const struct ga_entry *first = &b->entry[i];
        int32_t count = 1;
        if (first->key == 0)
            continue;
        for (uint32_t j = i + 1; j < b->count; j++) {
            struct ga_entry *e = &b->entry[j];
            bool same = e->key && e->bytes == first->bytes && e->device == first->device &&
                        e->tag == first->tag;
            count += same;
            e->key = same ? 0 : e->key;
        }
        release_streams(root, first, count);
    }
}

void ga_cuda_stream_sweep(struct ga_root *root, uint64_t serial) {
    struct batch b;
    struct ga_entry e;
    do {
        b.count = 0;
        struct ga_walk walk = ga_self_walk(&root->streams);
        while (ga_self_next(&walk, &e))
            if (e.context == serial && b.count < BATCH)
                b.entry[b.count++] = e;
        release_batch(root, &b);
    } while (b.count == BATCH);
}

void ga_cuda_stream_capture(void) {
    struct ga_root *root = ga_root_get();
    atomic_fetch_add(&ga_cuda_captures,
                     1); // first, so that no other thread begins to ask about a stream
    if (root)
        ga_memory_pending_pause(root);
}
