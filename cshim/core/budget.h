// SPDX-License-Identifier: Apache-2.0
// What a program is told of a device's memory, by whatever API it asks: its budget.
#ifndef GA_BUDGET_H
#define GA_BUDGET_H

#include "core/root.h"

struct ga_budget {
    uint64_t total; // the budget, and no more than what the device has
    uint64_t used;  // of it, by all who share it
    uint64_t room;  // free: what could be had now
    bool limited;   // memory.max is below what the device can grant
};

// Tells about a device of `capacity` bytes: what the process itself has done is in it, what others
// did a moment ago may not be. It opens a session, and no lease. False: the vendor's own answer
// stands.
bool ga_budget_ask(struct ga_root *root, const uint8_t uuid[GA_UUID_SIZE], uint64_t capacity,
                   struct ga_budget *budget);

#endif
