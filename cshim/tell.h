// SPDX-License-Identifier: Apache-2.0
// What the page says of the blocks that the process holds, so that the daemon can tell what a
// driver rounds up from memory that no call names: LeaseSlot.Counts in wire.h.
//
// Too few blocks would have rounding charged, so the page never lags behind: it has the most that
// there were of each shard of the table, and learns of more before a call returns. Of fewer it
// learns when the daemon is asked, at most once a second.
#ifndef GA_TELL_H
#define GA_TELL_H

#include "root.h"

// Writes it into every slot that is attached.
void ga_tell(struct ga_root *root);
// Counts anew, if that is due.
void ga_tell_again(struct ga_root *root);
// From here on some of what is charged may not be on the device.
void ga_tell_soft(struct ga_root *root);
// One more pool that memory is taken from.
void ga_tell_pool(struct ga_root *root);
// Other processes' memory was imported. How much of it is left, and whether the device counts it
// for this process, nobody says: from here on nothing beyond the bytes is explained by less.
void ga_tell_foreign(struct ga_root *root);

// After something was put into the table of blocks.
static inline void ga_tell_more(struct ga_root *root) {
    if (GA_UNLIKELY(atomic_load_explicit(&root->blocks.most, memory_order_relaxed) !=
                    atomic_load_explicit(&root->blocks.told, memory_order_relaxed)))
        ga_tell(root);
}

#endif
