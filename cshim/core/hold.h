// SPDX-License-Identifier: Apache-2.0
// Holds: where slots are the threads', a thread that uses what another one made needs a slot of its
// own, and has nothing yet that would tell so. It has one hold a device, for two reasons, which an
// entry of root.holds counts:
//   bytes    the thread's id in the kernel while it uses something there, else 0. The use ends when
//            the thread is done with it, or dead;
//   context  how often it has retained something there by name: until as much was released.
// The key of an entry has the thread and the device; its kind is 1 if the daemon counts the hold.
#ifndef GA_HOLD_H
#define GA_HOLD_H

#include "core/root.h"

// Whether the slots of a device are the threads' here. Opens the lease.
bool ga_hold_matters(struct ga_root *root, uint32_t device);
// The calling thread uses something of a device; waits for a slot if need be. A thread that has
// retained something there needs nothing more. False: refused.
bool ga_hold_use(struct ga_root *root, uint32_t device);
// It is done with all that it used so.
void ga_hold_drop(struct ga_root *root);

// The hold that a retain needs, if the thread has none. False: refused. Then the driver is asked,
// and one of the next two follows.
struct ga_hold {
    uint32_t device;
    uint16_t tag;
    bool asked; // the daemon counts it
};
bool ga_hold_ask(struct ga_root *root, uint32_t device, struct ga_hold *hold);
void ga_hold_retain(struct ga_root *root, const struct ga_hold *hold);
void ga_hold_unask(struct ga_root *root, const struct ga_hold *hold);
// One retain less: the calling thread's own, or, if it has none, another thread's.
void ga_hold_release(struct ga_root *root, uint32_t device);
// Nothing is retained any more.
void ga_hold_release_all(struct ga_root *root, uint32_t device);

#endif
