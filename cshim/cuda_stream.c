// SPDX-License-Identifier: Apache-2.0
#include "cuda_stream.h"

#include "admit.h"
#include "cuda_device.h"
#include "cuda_pending.h"

struct claim {
    struct ga_root *root;
    uint64_t context;
    uint32_t device;
    uint16_t tag;
};

enum opened { PASS, REFUSED, ADMITTED };

static enum opened open_claim(struct claim *c) {
    c->root = ga_root_get();
    int device = c->root ? ga_cuda_device_current(c->root, &c->context) : -1;
    if (device < 0)
        return PASS;
    c->device = (uint32_t)device;
    return ga_admit_streams(c->root, c->device, 1, &c->tag) ? ADMITTED : REFUSED;
}

static void give_back(struct ga_root *root, uint32_t device, uint16_t tag) {
    uint16_t now;
    if (tag == atomic_load(&root->tag))
        ga_admit_streams(root, device, -1, &now);
}

static ga_result settle(struct claim *c, ga_result result, const ga_stream *stream) {
    if (result != GA_CUDA_SUCCESS) {
        give_back(c->root, c->device, c->tag);
        return result;
    }
    struct ga_entry entry = {
        .key = (uint64_t)(uintptr_t)*stream,
        .context = c->context,
        .tag = c->tag,
        .device = (uint8_t)c->device,
    };
    struct ga_entry old;
    ga_self_enter();
    bool put = ga_table_put(&c->root->streams, &entry, &old);
    ga_self_leave();
    if (!put)
        give_back(c->root, c->device, c->tag);
    else if (old.key) // destroyed out of our sight
        give_back(c->root, old.device, old.tag);
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

// As with memory: out of the table before the driver, which may give the handle out again.
ga_result ga_cuda_stream_destroy(GA_FN_cuStreamDestroy_v2 *real, ga_stream stream) {
    struct ga_root *root = ga_root_get();
    struct ga_entry entry;
    struct ga_entry old;
    if (!root)
        return real(stream);
    ga_self_enter();
    bool ours = ga_table_take(&root->streams, (uint64_t)(uintptr_t)stream, &entry);
    ga_self_leave();
    ga_result result = real(stream);
    if (result == GA_CUDA_SUCCESS)
        ga_cuda_pending_stream_gone(root, stream);
    if (!ours)
        return result;
    if (result == GA_CUDA_SUCCESS) {
        give_back(root, entry.device, entry.tag);
        return result;
    }
    ga_self_enter();
    ga_table_put(&root->streams, &entry, &old);
    ga_self_leave();
    return result;
}
