// SPDX-License-Identifier: Apache-2.0
// Slots of threads. Slots may be counted by thread (slots.scope = "thread"). A thread that uses
// another thread's context then needs a slot of its own, although it makes nothing that the daemon
// could count. It has a slot for each device: an entry of root.thread_slots, and a "hold" in the
// messages. The thread has the slot for two reasons, and loses it when there is neither:
//   bytes    a use: ID of the thread in the kernel while a context of the device is current in it;
//            0: no use. A use ends when no such context is current any more, or the thread is dead;
//   context  number of retains by the thread that were not released yet.
// The key of an entry is made of the number of the thread and of the device. Kind 1: the daemon
// counts the slot; 0: it does not, because slots are not counted by thread there.
#ifndef GA_THREAD_SLOT_H
#define GA_THREAD_SLOT_H

#include "core/root.h"

// Reports whether the slots of a device are counted by thread. Opens the lease to find out.
bool ga_thread_slot_matters(struct ga_root *root, uint32_t device);
// Adds a use to the calling thread's slot on a device. It may wait for a slot. If the thread has a
// retain there, no use is needed, and none is added. False: refused.
bool ga_thread_slot_use(struct ga_root *root, uint32_t device);
// Ends all uses of the calling thread.
void ga_thread_slot_drop(struct ga_root *root);

// A slot that the calling thread has asked for, because the driver is about to retain something for
// it.
struct ga_thread_slot {
    uint32_t device;
    uint16_t tag; // number of the session that counts it
    bool asked;   // the daemon counts it; false: the thread had a slot already, or needs none
};
// Asks for a slot, if the thread needs one and has none. False: refused. True: after the driver's
// answer the caller must call ga_thread_slot_retain or ga_thread_slot_unask.
bool ga_thread_slot_ask(struct ga_root *root, uint32_t device, struct ga_thread_slot *slot);
// Adds a retain to the calling thread's slot, because the driver has retained.
void ga_thread_slot_retain(struct ga_root *root, const struct ga_thread_slot *slot);
// Gives the slot back, because the driver has refused.
void ga_thread_slot_unask(struct ga_root *root, const struct ga_thread_slot *slot);
// Subtracts a retain from the calling thread's slot or, if that has none, from another thread's.
void ga_thread_slot_release(struct ga_root *root, uint32_t device);
// Subtracts all retains of all threads.
void ga_thread_slot_release_all(struct ga_root *root, uint32_t device);

#endif
