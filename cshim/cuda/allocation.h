// SPDX-License-Identifier: Apache-2.0
// The accounting of one allocation around a CUDA driver call. A wrapper reserves bytes (open),
// calls the driver, and settles: the bytes become a table entry, or are released. For a free it
// removes the entry, calls the driver, and releases the bytes. Used by array.c, memory.c, limit.c
// and hooks.c. struct ga_allocation is in core/admit.h; blocks of pools are in cuda/async.c.
#ifndef GA_CUDA_ALLOCATION_H
#define GA_CUDA_ALLOCATION_H

#include "core/admit.h"
#include "cuda/context.h"
#include "cuda/device.h"

// Reserves the bytes of c->entry on a device, given by gpuarb's number or −1 (not arbitrated).
// False: refused, and nothing is reserved. True: the caller must call ga_cuda_allocation_settle
// after the driver has answered.
static inline bool ga_cuda_allocation_acquire(struct ga_allocation *c, int device) {
    if (GA_UNLIKELY(!ga_allocation_acquire(c, device)))
        return false;
    if (GA_LIKELY(c->root != NULL))
        c->epoch = ga_cuda_context_epoch(c->root);
    return true;
}

// Reserves bytes on the device of the current context, as ga_cuda_allocation_acquire does. Reserves
// nothing for 0 bytes: the driver decides alone.
static inline bool ga_cuda_allocation_open(struct ga_allocation *c, uint64_t bytes, uint8_t kind) {
    c->root = NULL;
    if (GA_UNLIKELY(bytes == 0))
        return true;
    c->entry = (struct ga_entry){.bytes = bytes, .kind = kind};
    if (GA_UNLIKELY(!ga_allocation_begin(c)))
        return false;
    return GA_UNLIKELY(c->root == NULL) ||
           ga_cuda_allocation_acquire(c, ga_cuda_device_current(c->root, &c->entry.context));
}

// Inserts an entry into the table. Its bytes, which were in flight, then belong to the entry.
// False: there is no memory for the entry.
static inline bool ga_cuda_allocation_insert(struct ga_root *root, const struct ga_entry *entry,
                                             uint64_t epoch) {
    bool kept = ga_insert(root, entry);
    ga_cuda_context_check(root, entry->context, epoch);
    return kept;
}

// Frees what the driver has made, given its key. False: the driver refused.
typedef bool ga_cuda_undo(uint64_t key);

// Settles the allocation after the driver's answer. If there is no memory for an entry, undo frees
// what the driver made. If the driver refuses that, the program keeps the block, and its bytes stay
// charged until the process ends.
static inline ga_result ga_cuda_allocation_settle(struct ga_allocation *c, ga_result result,
                                                  uint64_t key, ga_cuda_undo *undo) {
    if (GA_UNLIKELY(c->root == NULL))
        return result;
    if (GA_UNLIKELY(result != GA_CUDA_SUCCESS)) {
        ga_allocation_release(c);
        return result;
    }
    c->entry.key = key;
    if (GA_LIKELY(ga_cuda_allocation_insert(c->root, &c->entry, c->epoch)))
        return result;
    if (!undo(key)) {
        ga_charge_for_good(c->root, &c->entry);
        return result;
    }
    ga_allocation_release(c);
    return GA_CUDA_OUT_OF_MEMORY;
}

// Removes the entry of a block that the program frees. It must be called before the driver, because
// the driver may hand out the same address or handle again at once. False: the table has no such
// entry.
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

// Inserts the entry again, because the driver refused the free.
static inline void ga_cuda_allocation_put_back(const struct ga_allocation *c) {
    if (!ga_cuda_allocation_insert(c->root, &c->entry, c->epoch))
        ga_charge_for_good(c->root, &c->entry);
}

// Settles a free after the driver's answer: releases the bytes, or inserts the entry again.
static inline void ga_cuda_allocation_freed(const struct ga_allocation *c, ga_result result) {
    if (GA_LIKELY(result == GA_CUDA_SUCCESS))
        ga_allocation_release(c);
    else
        ga_cuda_allocation_put_back(c);
}

#endif
