// SPDX-License-Identifier: Apache-2.0
// Free lists of records of one kind and size. Released records are used again; new ones come from
// memory that lives as long as the process (ga_root_alloc). Each list has a spin lock. memory/ and
// the interfaces use this.
#ifndef GA_RECORDS_H
#define GA_RECORDS_H

#include "core/root.h"

struct ga_records {
    struct ga_spin lock;
    void *unused; // first unused record; each begins with a pointer to the next
};

// Returns a record; NULL: no memory. A new record is zeroed; a used one has its old content, except
// the first word.
void *ga_records_acquire(struct ga_root *root, struct ga_records *records, size_t size);
// Puts a record into the list. May be called with another lock held.
void ga_records_release(struct ga_records *records, void *record);

#endif
