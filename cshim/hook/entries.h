// SPDX-License-Identifier: Apache-2.0
// Entries: functions that only jump to where their place in a table says. A program that looks a
// function up in a second copy of a library gets an entry, so that it can be decided later whether
// its calls go to a wrapper or to that copy.
#ifndef GA_ENTRIES_H
#define GA_ENTRIES_H

#include "core/os.h"

#define GA_ENTRIES 1536
#define GA_ENTRY_BYTES 16 // of code

extern void *_Atomic ga_entry_targets[GA_ENTRIES]
    __attribute__((visibility("hidden"))); // where each of them goes on to
extern const uint8_t ga_entry_code[];      // the first one

static inline void *ga_entry(size_t number) {
    return (void *)(uintptr_t)(ga_entry_code + number * GA_ENTRY_BYTES);
}

#endif
