// SPDX-License-Identifier: Apache-2.0
// Something that the program takes, on its way: open, then the driver, then settle. All of CUDA's
// entry points that take do these three steps; what differs is what is taken, and by what the
// driver takes it back.
#ifndef GA_CUDA_CLAIM_H
#define GA_CUDA_CLAIM_H

#include "core/admit.h"
#include "cuda/device.h"
#include "cuda/late.h"

struct ga_cuda_claim {
    struct ga_root *root; // NULL: not arbitrated, the driver alone decides
    uint64_t bytes;
    uint64_t context; // that it lives in
    uint64_t epoch;   // ga_cuda_late_epoch
    uint32_t device;
    uint16_t tag;
    uint8_t kind;
};

// Without a root nothing can be accounted for. False: so it is refused.
static inline bool ga_cuda_claim_begin(struct ga_cuda_claim *c) {
    c->root = ga_root_get();
    return GA_LIKELY(c->root != NULL) || !ga_root_denies();
}

// The bytes of a device, by its number or −1. False: refused, and nothing was taken. True:
// ga_cuda_claim_settle follows when the driver has answered.
static inline bool ga_cuda_claim_on(struct ga_cuda_claim *c, int device) {
    if (GA_UNLIKELY(device < 0)) {
        c->root = NULL;
        return true;
    }
    c->device = (uint32_t)device;
    if (GA_UNLIKELY(!ga_admit(c->root, c->device, c->bytes, c->kind, &c->tag)))
        return false;
    c->epoch = ga_cuda_late_epoch(c->root);
    return true;
}

// The same on the device of the current context. No bytes are the driver's own matter.
static inline bool ga_cuda_claim_open(struct ga_cuda_claim *c, uint64_t bytes, uint8_t kind) {
    c->root = NULL;
    c->bytes = bytes;
    c->kind = kind;
    if (GA_UNLIKELY(bytes == 0))
        return true;
    if (GA_UNLIKELY(!ga_cuda_claim_begin(c)))
        return false;
    return GA_UNLIKELY(c->root == NULL) ||
           ga_cuda_claim_on(c, ga_cuda_device_current(c->root, &c->context));
}

static inline void ga_cuda_claim_drop(const struct ga_cuda_claim *c) {
    ga_release(c->root, c->device, c->bytes, c->tag);
}

// Bytes that are on their way become an entry. False: there is no memory to remember it by.
static inline bool ga_cuda_claim_keep(struct ga_root *root, const struct ga_entry *entry,
                                      uint64_t epoch) {
    bool kept = ga_hold(root, entry);
    ga_cuda_late_look(root, &root->blocks, entry, epoch);
    return kept;
}

// The driver did not end what was taken out of the table for that.
static inline void ga_cuda_claim_put_back(struct ga_root *root, const struct ga_entry *entry,
                                          uint64_t epoch) {
    ga_hold(root, entry);
    ga_cuda_late_join(root, &root->blocks, entry, epoch);
}

// Has the driver take back what it made, by its key. False: it does not.
typedef bool ga_cuda_undo(uint64_t key);

// The driver has answered. Without memory to remember it by: better none than what nobody can
// account for.
static inline ga_result ga_cuda_claim_settle(struct ga_cuda_claim *c, ga_result result,
                                             uint64_t key, ga_cuda_undo *undo) {
    if (GA_UNLIKELY(c->root == NULL))
        return result;
    if (GA_UNLIKELY(result != GA_CUDA_SUCCESS)) {
        ga_cuda_claim_drop(c);
        return result;
    }
    struct ga_entry entry = {
        .key = key,
        .bytes = c->bytes,
        .context = c->context,
        .tag = c->tag,
        .device = (uint8_t)c->device,
        .kind = c->kind,
    };
    if (GA_UNLIKELY(!ga_cuda_claim_keep(c->root, &entry, c->epoch)) && undo(key)) {
        ga_cuda_claim_drop(c);
        return GA_CUDA_OUT_OF_MEMORY;
    }
    return result;
}

#endif
