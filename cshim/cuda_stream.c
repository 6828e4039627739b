// SPDX-License-Identifier: Apache-2.0
#include "cuda_stream.h"

#include "admit.h"
#include "cuda_device.h"
#include "cuda_green.h"
#include "cuda_late.h"
#include "cuda_pending.h"

struct claim {
    struct ga_root *root;
    uint64_t context;
    uint64_t epoch; // ga_cuda_late_epoch
    uint32_t device;
    uint16_t tag;
};

enum opened { PASS, REFUSED, ADMITTED };

static enum opened open_on(struct claim *c, int device) {
    if (device < 0)
        return PASS;
    c->device = (uint32_t)device;
    if (!ga_admit_streams(c->root, c->device, 1, ga_self.number, &c->tag))
        return REFUSED;
    c->epoch = ga_cuda_late_epoch(c->root);
    return ADMITTED;
}

static enum opened open_claim(struct claim *c) {
    c->root = ga_root_get();
    if (!c->root)
        return ga_root_denies() ? REFUSED : PASS;
    return open_on(c, ga_cuda_device_current(c->root, &c->context));
}

static void give_back(struct ga_root *root, const struct ga_entry *entry, int32_t count) {
    uint16_t tag = entry->tag;
    ga_admit_streams(root, entry->device, -count, (uint32_t)entry->bytes, &tag);
}

static ga_result settle(struct claim *c, ga_result result, const ga_stream *stream) {
    struct ga_entry entry = {
        .key = result == GA_CUDA_SUCCESS ? (uint64_t)(uintptr_t)*stream : 0,
        .bytes = ga_self.number,
        .context = c->context,
        .tag = c->tag,
        .device = (uint8_t)c->device,
    };
    struct ga_entry old;
    if (result != GA_CUDA_SUCCESS) {
        give_back(c->root, &entry, 1);
        return result;
    }
    ga_self_enter();
    bool put = ga_table_put(&c->root->streams, &entry, &old);
    ga_self_leave();
    // Without memory to remember it by it is unmade. One that cannot be stays counted.
    if (!put && GA_REAL(cuStreamDestroy_v2) &&
        GA_REAL(cuStreamDestroy_v2)(*stream) == GA_CUDA_SUCCESS) {
        give_back(c->root, &entry, 1);
        return GA_CUDA_OUT_OF_MEMORY;
    }
    if (old.key) // destroyed out of our sight
        give_back(c->root, &old, 1);
    ga_cuda_late_look(c->root, &c->root->streams, &entry, c->epoch);
    return result;
}

ga_result ga_cuda_stream_create(GA_FN_cuStreamCreate *real, ga_stream *stream, unsigned int flags) {
    struct claim c;
    enum opened opened = open_claim(&c);
    if (opened == REFUSED)
        return GA_CUDA_OUT_OF_MEMORY;
    ga_result result = real(stream, flags);
    return opened == PASS ? result : settle(&c, result, stream);
}

ga_result ga_cuda_stream_create_priority(GA_FN_cuStreamCreateWithPriority *real, ga_stream *stream,
                                         unsigned int flags, int priority) {
    struct claim c;
    enum opened opened = open_claim(&c);
    if (opened == REFUSED)
        return GA_CUDA_OUT_OF_MEMORY;
    ga_result result = real(stream, flags, priority);
    return opened == PASS ? result : settle(&c, result, stream);
}

ga_result ga_cuda_stream_create_green(GA_FN_cuGreenCtxStreamCreate *real, ga_stream *stream,
                                      ga_green green, unsigned int flags, int priority) {
    struct claim c = {.root = ga_root_get()};
    if (!c.root && ga_root_denies())
        return GA_CUDA_OUT_OF_MEMORY;
    int device = c.root ? ga_cuda_green_device(c.root, green, &c.context) : -1;
    if (device < 0)
        return real(stream, green, flags, priority);
    if (open_on(&c, device) == REFUSED)
        return GA_CUDA_OUT_OF_MEMORY;
    return settle(&c, real(stream, green, flags, priority), stream);
}

// As with memory: out of the table before the driver, which may give the handle out again.
ga_result ga_cuda_stream_destroy(GA_FN_cuStreamDestroy_v2 *real, ga_stream stream) {
    struct ga_root *root = ga_root_get();
    struct ga_entry entry;
    struct ga_entry old;
    if (!root)
        return real(stream);
    uint64_t epoch = ga_cuda_late_epoch(root);
    ga_self_enter();
    bool ours = ga_table_take(&root->streams, (uint64_t)(uintptr_t)stream, &entry);
    ga_self_leave();
    ga_cuda_pending_stream_ends(root, stream);
    ga_result result = real(stream);
    if (result == GA_CUDA_SUCCESS)
        ga_cuda_pending_stream_gone(root, stream);
    if (!ours)
        return result;
    if (result == GA_CUDA_SUCCESS) {
        give_back(root, &entry, 1);
        return result;
    }
    ga_self_enter();
    ga_table_put(&root->streams, &entry, &old);
    ga_self_leave();
    ga_cuda_late_join(root, &root->streams, &entry, epoch);
    return result;
}

#define BATCH 64
struct batch {
    uint64_t ticket;
    uint32_t count;
    struct ga_entry entry[BATCH];
};

static void collect(void *arg, const struct ga_entry *e) {
    struct batch *b = arg;
    if (e->context == b->ticket && b->count < BATCH)
        b->entry[b->count++] = *e;
}

// Gives back what is in the table still, in one request for each maker.
static void give_back_batch(struct ga_root *root, struct batch *b) {
    for (uint32_t i = 0; i < b->count; i++) {
        ga_self_enter();
        if (!ga_table_take(&root->streams, b->entry[i].key, &b->entry[i]))
            b->entry[i].key = 0;
        ga_self_leave();
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
        give_back(root, first, count);
    }
}

void ga_cuda_stream_sweep(struct ga_root *root, uint64_t ticket) {
    struct batch b = {.ticket = ticket};
    do {
        b.count = 0;
        ga_self_enter();
        ga_table_each(&root->streams, collect, &b);
        ga_self_leave();
        give_back_batch(root, &b);
    } while (b.count == BATCH);
}
