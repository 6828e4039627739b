// SPDX-License-Identifier: Apache-2.0
// Puts bytes that are released into the credit word. admit.h has the functions that interfaces
// call.
#ifndef GA_RELEASE_H
#define GA_RELEASE_H

#include "core/credit.h"
#include "core/root.h"

// Subtracts bytes from the debt of a device: what was acquired without a daemon was never part of
// what a daemon granted. Returns what is left of the bytes.
static inline uint64_t ga_pay_debt(struct ga_root *root, uint32_t device, uint64_t bytes) {
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

// Puts bytes into the credit word, unless they were charged in a session (tag) that is over. The
// caller has begun a move. Returns the lease's slot + 1 if the daemon must be told, because another
// job waits for bytes; else 0.
static inline uint32_t ga_release_in_move(struct ga_root *root, uint32_t device, uint64_t bytes,
                                          uint16_t tag) {
    struct ga_view *view = atomic_load_explicit(&root->view, memory_order_acquire);
    if (GA_UNLIKELY((view ? view->tag : atomic_load(&root->tag)) != tag || bytes == 0))
        return 0;
    uint32_t slot =
        GA_LIKELY(view) ? atomic_load_explicit(&view->slot[device], memory_order_acquire) : 0;
    bytes = ga_pay_debt(root, device, bytes);
    if (GA_UNLIKELY(bytes == 0 || slot == 0))
        return 0;
    uint64_t before = ga_credit_release(&view->page->lease[slot - 1], bytes);
    ga_self.credit_seen = before + bytes;
    return GA_UNLIKELY(before & GA_FLAG_NOTIFY) ? slot : 0;
}

#endif
