// SPDX-License-Identifier: Apache-2.0
// What the program takes of CUDA (ga_allocation): open, then the driver, then settle. All of CUDA's
// entry points that take do these three steps; what differs is what is taken, and by what the
// driver takes it back.
#ifndef GA_CUDA_ALLOCATION_H
#define GA_CUDA_ALLOCATION_H

#include "core/admit.h"
#include "cuda/context.h"
#include "cuda/device.h"

// The bytes of a device, by its number or −1. False: refused, and nothing was taken. True:
// ga_cuda_allocation_settle follows when the driver has answered.
static inline bool ga_cuda_allocation_on(struct ga_allocation *c, int device) {
    if (GA_UNLIKELY(!ga_allocation_acquire(c, device)))
        return false;
    if (GA_LIKELY(c->root != NULL))
        c->epoch = ga_cuda_context_epoch(c->root);
    return true;
}

// The same on the device of the current context. No bytes are the driver's own matter.
static inline bool ga_cuda_allocation_open(struct ga_allocation *c, uint64_t bytes, uint8_t kind) {
    c->root = NULL;
    if (GA_UNLIKELY(bytes == 0))
        return true;
    c->entry = (struct ga_entry){.bytes = bytes, .kind = kind};
    if (GA_UNLIKELY(!ga_allocation_begin(c)))
        return false;
    return GA_UNLIKELY(c->root == NULL) ||
           ga_cuda_allocation_on(c, ga_cuda_device_current(c->root, &c->entry.context));
}

// Bytes that are on their way become an entry. False: there is no memory to remember it by.
static inline bool ga_cuda_allocation_keep(struct ga_root *root, const struct ga_entry *entry,
                                           uint64_t epoch) {
    bool kept = ga_insert(root, entry);
    ga_cuda_context_check(root, entry->context, epoch);
    return kept;
}

// Has the driver take back what it made, by its key. False: it does not.
typedef bool ga_cuda_undo(uint64_t key);

// Settles the allocation after the driver's answer. If there is no memory for an entry, the driver
// is asked to take back what it made. If it does not, the program has it, and it stays charged.
static inline ga_result ga_cuda_allocation_settle(struct ga_allocation *c, ga_result result,
                                                  uint64_t key, ga_cuda_undo *undo) {
    if (GA_UNLIKELY(c->root == NULL))
        return result;
    if (GA_UNLIKELY(result != GA_CUDA_SUCCESS)) {
        ga_allocation_release(c);
        return result;
    }
    c->entry.key = key;
    if (GA_LIKELY(ga_cuda_allocation_keep(c->root, &c->entry, c->epoch)))
        return result;
    if (!undo(key)) {
        ga_charge_for_good(c->root, &c->entry);
        return result;
    }
    ga_allocation_release(c);
    return GA_CUDA_OUT_OF_MEMORY;
}

// Takes what the program gives back out of the table. The driver is called after that, because it
// may give the address or handle out again at once. False: the table has no such entry.
static inline bool ga_cuda_allocation_remove_key(struct ga_allocation *c, struct ga_key key) {
    c->root = ga_root_get();
    if (GA_UNLIKELY(c->root == NULL))
        return false;
    c->epoch = ga_cuda_context_epoch(c->root);
    return ga_remove_key(c->root, key, &c->entry);
}
static inline bool ga_cuda_allocation_remove(struct ga_allocation *c, uint64_t address) {
    return ga_cuda_allocation_remove_key(c, (struct ga_key){address, GA_SPACE_PLAIN});
}

// Puts the entry back, because the driver did not take back what it stands for.
static inline void ga_cuda_allocation_put_back(const struct ga_allocation *c) {
    if (!ga_cuda_allocation_keep(c->root, &c->entry, c->epoch))
        ga_charge_for_good(c->root, &c->entry);
}

static inline void ga_cuda_allocation_freed(const struct ga_allocation *c, ga_result result) {
    if (GA_LIKELY(result == GA_CUDA_SUCCESS))
        ga_allocation_release(c);
    else
        ga_cuda_allocation_put_back(c);
}

#endif
