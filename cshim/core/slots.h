// SPDX-License-Identifier: Apache-2.0
// The slots of one object that may be for several devices: a context, or a logical device, has one
// of each, or is refused.
#ifndef GA_SLOTS_H
#define GA_SLOTS_H

#include "core/root.h"

struct ga_slots {
    uint32_t maker;           // ga_self.number of who took them
    uint16_t tag[GA_DEVICES]; // by the device's number, of those that
    bool has[GA_DEVICES];     // it has taken
};

// Takes one of each device that is wanted. Then the driver is asked, and ga_slots_made follows.
// False: refused, and nothing was taken.
bool ga_slots_acquire(struct ga_root *root, struct ga_slots *s, const bool wanted[GA_DEVICES]);
// The driver is done with them.
void ga_slots_made(struct ga_root *root, const struct ga_slots *s);
void ga_slots_release(struct ga_root *root, const struct ga_slots *s);

#endif
