// SPDX-License-Identifier: Apache-2.0
// Entries: functions that only jump to the address that ga_entry_targets has for them. A program
// gets an entry when it looks up a function in a second copy of a library. hook/copies.c can change
// the target later from that copy to the wrapper. The targets are atomic; copies.c writes them
// under its lock.
#ifndef GA_ENTRIES_H
#define GA_ENTRIES_H

#include "core/os.h"

#define GA_ENTRIES 1536
#define GA_ENTRY_BYTES 16 // bytes of code of each entry

extern void *_Atomic ga_entry_targets[GA_ENTRIES]
    __attribute__((visibility("hidden"))); // address that each entry jumps to
extern const uint8_t ga_entry_code[];      // code of all entries, one after the other

static inline void *ga_entry(size_t number) {
    return (void *)(uintptr_t)(ga_entry_code + number * GA_ENTRY_BYTES);
}

#endif
