// SPDX-License-Identifier: Apache-2.0
// Holds: where slots are the threads', a thread that uses what another one made needs a
// slot of its own, and has nothing yet that would tell so. It takes one hold a device, which goes
// back when it is done, or dead. What it has retained by name it holds by itself, until somebody
// lets go of that.
//
// root.holds is the one record of both: who holds which device, since which session.
#ifndef GA_HOLD_H
#define GA_HOLD_H

#include "core/root.h"

// Whether the slots of a device are the threads' here. Opens the lease.
bool ga_hold_matters(struct ga_root *root, uint32_t device);
// The calling thread's hold on a device; waits for a slot if need be. False: refused.
bool ga_hold_take(struct ga_root *root, uint32_t device);
// It is done with all that it took so.
void ga_hold_drop(struct ga_root *root);

// Whether the calling thread has retained something of a device.
bool ga_hold_retains(struct ga_root *root, uint32_t device);
// The hold that a retain needs, where the thread has none of the kind. False: refused. Then the
// driver is asked, and one of the next two follows.
struct ga_hold {
    uint32_t device;
    uint16_t tag;
    bool asked; // the daemon counts it
};
bool ga_hold_ask(struct ga_root *root, uint32_t device, struct ga_hold *hold);
void ga_hold_retain(struct ga_root *root, const struct ga_hold *hold);
void ga_hold_unask(struct ga_root *root, const struct ga_hold *hold);
// One retain less: the calling thread's own, or, where it has none, somebody's.
void ga_hold_release(struct ga_root *root, uint32_t device);
// Nothing is retained any more.
void ga_hold_release_all(struct ga_root *root, uint32_t device);

#endif
