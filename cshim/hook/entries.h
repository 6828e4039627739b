// SPDX-License-Identifier: Apache-2.0
// Entries: functions that only jump to the address which ga_entry_targets has for them. A program
// that looks up a function in a second copy of a library gets an entry, so that hook/copies.c can
// decide later whether its calls go to the wrapper or to that copy.
#ifndef GA_ENTRIES_H
#define GA_ENTRIES_H

#include "core/os.h"

#define GA_ENTRIES 1536
#define GA_ENTRY_BYTES 16 // of code

extern void *_Atomic ga_entry_targets[GA_ENTRIES]
    __attribute__((visibility("hidden"))); // address that each entry jumps to
extern const uint8_t ga_entry_code[];      // code of all entries, one after the other

static inline void *ga_entry(size_t number) {
    return (void *)(uintptr_t)(ga_entry_code + number * GA_ENTRY_BYTES);
}

#endif
