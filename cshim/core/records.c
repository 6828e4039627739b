// SPDX-License-Identifier: Apache-2.0
// Records of one size that are used again. records.h describes the functions.
#include "core/records.h"

void *ga_records_acquire(struct ga_root *root, struct ga_records *r, size_t size) {
    ga_self_lock(&r->lock);
    void **record = r->unused;
    if (record)
        r->unused = *record;
    ga_self_unlock(&r->lock);
    return record ? (void *)record : ga_root_alloc(root, size);
}

void ga_records_release(struct ga_records *r, void *record) {
    uint32_t inside = ga_self.inside; // the brackets do not nest
    if (!inside)
        ga_self_enter();
    ga_spin_lock(&r->lock);
    *(void **)record = r->unused;
    r->unused = record;
    ga_spin_unlock(&r->lock);
    if (!inside)
        ga_self_leave();
}
