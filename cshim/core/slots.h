// SPDX-License-Identifier: Apache-2.0
// Slots of one object on several devices. A context or a logical device needs one slot on each of
// its devices, or is refused. The interfaces call this around the driver's call. It holds no lock.
#ifndef GA_SLOTS_H
#define GA_SLOTS_H

#include "core/root.h"

struct ga_slots {
    uint32_t maker;           // ga_self.number of the acquiring thread
    uint16_t tag[GA_DEVICES]; // by device number: session that counts the slot
    bool has[GA_DEVICES];     // by device number: true: acquired
    uint32_t full;            // ga_admit_again, set by the caller before ga_slots_acquire
};

// Acquires a slot on each wanted device. Afterwards the caller calls the driver, then
// ga_slots_made, and looks at ga_admit_again if the driver failed. False: refused; nothing was
// acquired.
bool ga_slots_acquire(struct ga_root *root, struct ga_slots *s, const bool wanted[GA_DEVICES]);
// Ends the announcement of new contexts, after the driver's answer.
void ga_slots_made(struct ga_root *root, const struct ga_slots *s);
// Reports whether a slot was acquired, also after its release.
bool ga_slots_any(const struct ga_slots *s);
void ga_slots_release(struct ga_root *root, const struct ga_slots *s);

#endif
