// SPDX-License-Identifier: Apache-2.0
// What the page says of the blocks that the process holds, so that the daemon can tell what a
// driver rounds up from memory that no call names: LeaseSlot.Counts in wire.h.
//
// Too few blocks would have rounding charged, so the page never lags behind: it has the most that
// there were of each shard of the table, and learns of more before a call returns. Of fewer it
// learns when the daemon is asked, at most once a second.
#ifndef GA_TELL_H
#define GA_TELL_H

#include "core/root.h"

// Writes it into every slot that is attached.
void ga_tell(struct ga_root *root);
// Counts anew, if that is due.
void ga_tell_again(struct ga_root *root);
// From here on some of what is charged may not be on the device.
void ga_tell_soft(struct ga_root *root);
// One more pool that memory is taken from.
void ga_tell_pool(struct ga_root *root);
// So many more bytes of other processes' memory are imported on a device, and so many more pieces
// of which nobody tells the size; either may be less than none. As long as there are such pieces,
// nothing is beyond what they explain.
void ga_tell_import(struct ga_root *root, uint32_t device, uint64_t bytes, int unknown);

// Adds bytes (0 - bytes: takes them away) to what the lease page says of managed memory: blocks in
// use that the driver moves out of the device if others need the room.
void ga_tell_managed(struct ga_root *root, uint32_t device, uint64_t bytes);

// The calling thread is about to ask for a context, and to have the driver make it; and it is done
// with that. Until then no reading of the device is expected to show it.
void ga_tell_making(struct ga_root *root, uint32_t device);
void ga_tell_made(struct ga_root *root, uint32_t device);
// Writes how much page-locked host memory is held (host.c) into the page, which may be a new one.
void ga_tell_host(struct ga_root *root);

// After something was put into the table of blocks.
static inline void ga_tell_more(struct ga_root *root) {
    if (GA_UNLIKELY(atomic_load_explicit(&root->blocks.most, memory_order_relaxed) !=
                    atomic_load_explicit(&root->blocks.told, memory_order_relaxed)))
        ga_tell(root);
}

#endif
