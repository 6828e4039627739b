// SPDX-License-Identifier: Apache-2.0
// The budget of a device: the figures that programs see when they ask an interface for the memory
// of a device. The wrappers of such queries call ga_budget_ask, so that all interfaces agree.
// root.answers holds the daemon's last answers, under answers_lock. Nothing here grants or refuses
// bytes.
#ifndef GA_BUDGET_H
#define GA_BUDGET_H

#include "core/root.h"

struct ga_budget {
    uint64_t total; // bytes of the budget, at most those of the device
    uint64_t used;  // bytes of the budget in use, by all jobs that share it
    uint64_t room;  // bytes that could be granted now
    bool limited;   // true: memory.max is below what the device can grant
};

// Reads the budget of a device of `capacity` bytes. The figures include every call of this process;
// changes by other jobs may show a moment later. Opens a session, but no lease. False: the program
// must get the vendor's own answer.
bool ga_budget_ask(struct ga_root *root, const uint8_t uuid[GA_UUID_SIZE], uint64_t capacity,
                   struct ga_budget *budget);

#endif
