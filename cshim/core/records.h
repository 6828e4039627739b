// SPDX-License-Identifier: Apache-2.0
// Records of one kind and size: those that were given back are used again, and others come from
// memory that stays as long as the process (ga_root_alloc).
#ifndef GA_RECORDS_H
#define GA_RECORDS_H

#include "core/root.h"

struct ga_records {
    struct ga_spin lock;
    void *unused; // each begins with where the next one is
};

// As it was left, but for its first word; zeroed when it is new. NULL: no memory.
void *ga_records_acquire(struct ga_root *root, struct ga_records *records, size_t size);
// May be called with a lock held.
void ga_records_release(struct ga_records *records, void *record);

#endif
