// SPDX-License-Identifier: Apache-2.0
// Bytes on their way back into the credit word.
#ifndef GA_GIVE_H
#define GA_GIVE_H

#include "core/credit.h"
#include "core/root.h"

// What was taken without a daemon was never part of what is granted: as long as none was told of
// it, what is freed makes up for it first. Returns what is left of the bytes.
static inline uint64_t ga_pay(struct ga_root *root, uint32_t device, uint64_t bytes) {
    _Atomic uint64_t *debt = &root->devices[device].debt;
    uint64_t owed = atomic_load_explicit(debt, memory_order_relaxed);
    while (GA_UNLIKELY(owed != 0)) {
        uint64_t paid = bytes < owed ? bytes : owed;
        if (atomic_compare_exchange_weak_explicit(debt, &owed, owed - paid, memory_order_relaxed,
                                                  memory_order_relaxed))
            return bytes - paid;
    }
    return bytes;
}

// Puts bytes into the credit word; inside a move. What was charged in a session that is over
// (tag) is nobody's. Returns slot + 1 when the daemon is to be told, else 0.
static inline uint32_t ga_give(struct ga_root *root, uint32_t device, uint64_t bytes,
                               uint16_t tag) {
    struct ga_view *view = atomic_load_explicit(&root->view, memory_order_acquire);
    if (GA_UNLIKELY((view ? view->tag : atomic_load(&root->tag)) != tag || bytes == 0))
        return 0;
    uint32_t slot =
        GA_LIKELY(view) ? atomic_load_explicit(&view->slot[device], memory_order_acquire) : 0;
    bytes = ga_pay(root, device, bytes);
    if (GA_UNLIKELY(bytes == 0 || slot == 0))
        return 0;
    uint64_t before = ga_credit_give(&view->page->lease[slot - 1], bytes);
    ga_self.credit_seen = before + bytes;
    return GA_UNLIKELY(before & GA_FLAG_NOTIFY) ? slot : 0;
}

#endif
