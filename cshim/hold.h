// SPDX-License-Identifier: Apache-2.0
// Holds: where slots are the threads', a thread that uses what another one made needs a
// slot of its own, and has nothing yet that would tell so. It takes one hold a device, which goes
// back when it is done, or dead.
#ifndef GA_HOLD_H
#define GA_HOLD_H

#include "root.h"

// Whether the slots of a device are the threads' here. Opens the lease.
bool ga_hold_matters(struct ga_root *root, uint32_t device);
// The calling thread's hold on a device; waits for a slot if need be. False: refused.
bool ga_hold_take(struct ga_root *root, uint32_t device);
// It is done with all that it held.
void ga_hold_drop(struct ga_root *root);
// Gives back what threads held that have died.
void ga_hold_bury(struct ga_root *root);

#endif
