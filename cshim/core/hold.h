// SPDX-License-Identifier: Apache-2.0
// Holds. If slots are counted by thread (slots.scope = "thread"), a thread that uses a context
// which another thread made needs a slot of its own, although it makes nothing that the daemon
// could count. It then has a hold: one for each device, which is an entry of root.holds. A hold has
// two reasons, and ends when it has neither:
//   bytes    a use: ID of the thread in the kernel while a context of the device is current in it;
//            0: no use. A use ends when no such context is current any more, or the thread is dead;
//   context  number of retains by the thread that were not released yet.
// The key of an entry is made of the number of the thread and of the device. Kind 1: the daemon
// counts the hold; 0: it does not, because slots are not counted by thread there.
#ifndef GA_HOLD_H
#define GA_HOLD_H

#include "core/root.h"

// Reports whether the slots of a device are counted by thread. Opens the lease to find out.
bool ga_hold_matters(struct ga_root *root, uint32_t device);
// Adds a use to the calling thread's hold on a device. It may wait for a slot. If the thread has a
// retain there, no use is needed, and none is added. False: refused.
bool ga_hold_use(struct ga_root *root, uint32_t device);
// Ends all uses of the calling thread.
void ga_hold_drop(struct ga_root *root);

// A hold that the calling thread has asked for, because the driver is about to retain something for
// it.
struct ga_hold {
    uint32_t device;
    uint16_t tag; // number of the session that counts it
    bool asked;   // the daemon counts it; false: the thread had a hold already, or needs none
};
// Asks for a hold, if the thread needs one and has none. False: refused. True: after the driver's
// answer the caller must call ga_hold_retain or ga_hold_unask.
bool ga_hold_ask(struct ga_root *root, uint32_t device, struct ga_hold *hold);
// Adds a retain to the calling thread's hold, because the driver has retained.
void ga_hold_retain(struct ga_root *root, const struct ga_hold *hold);
// Gives the hold back, because the driver has refused.
void ga_hold_unask(struct ga_root *root, const struct ga_hold *hold);
// Subtracts a retain from the calling thread's hold or, if that has none, from another thread's.
void ga_hold_release(struct ga_root *root, uint32_t device);
// Subtracts all retains of all threads.
void ga_hold_release_all(struct ga_root *root, uint32_t device);

#endif
