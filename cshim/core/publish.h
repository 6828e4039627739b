// SPDX-License-Identifier: Apache-2.0
// Publishes to the lease page how many blocks the process has (LeaseSlot.Counts in wire.h). The
// daemon needs the number to tell the driver's rounding of blocks from memory that the program took
// by calls which the library does not see.
//
// If the page had too few blocks, the daemon would charge rounding. So the page gets a greater
// number before the call that made the block returns; it contains the highest number of blocks of
// each shard of the table. A smaller number is published only when the daemon is asked for
// something, at most once a second.
#ifndef GA_PUBLISH_H
#define GA_PUBLISH_H

#include "core/root.h"

// Writes the numbers into the slot of every lease of the process.
void ga_publish(struct ga_root *root);
// Counts the blocks again and publishes their number, if the last count is at least a second old.
void ga_publish_again(struct ga_root *root);
// Publishes that some charged bytes may not be on the device.
void ga_publish_soft(struct ga_root *root);
// Publishes that the process allocates from one more pool.
void ga_publish_pool(struct ga_root *root);
// Adds bytes to the published size of imports on a device, and `unknown` to the number of imports
// of unknown size. Both may be negative (0 - bytes). While there are imports of unknown size, the
// daemon takes all unexplained usage for theirs.
void ga_publish_import(struct ga_root *root, uint32_t device, uint64_t bytes, int unknown);

// Adds bytes (0 - bytes: subtracts) to the published size of managed memory. The driver moves such
// blocks out of the device if other programs need the memory.
void ga_publish_managed(struct ga_root *root, uint32_t device, uint64_t bytes);

// Publishes that the calling thread requests a context and then has the driver make it. Until
// ga_publish_context_end the daemon does not expect the context's memory on the device.
void ga_publish_context_begin(struct ga_root *root, uint32_t device);
// Publishes that the call is over, whether or not the driver made the context.
void ga_publish_context_end(struct ga_root *root, uint32_t device);
// Writes how much page-locked host memory is held (host.c) into the page, which may be a new one.
void ga_publish_host(struct ga_root *root);

// Publishes that the program has made a call for a device, unless the page says so already. The
// daemon clears the mark when it reads it. Only the first call after that writes, so that threads
// do not contend for the cache line. No call reads a clock.
static inline void ga_publish_call(struct ga_root *root, uint32_t device) {
    struct ga_view *view = atomic_load_explicit(&root->view, memory_order_acquire);
    uint32_t slot =
        GA_LIKELY(view) ? atomic_load_explicit(&view->slot[device], memory_order_acquire) : 0;
    if (GA_UNLIKELY(slot == 0))
        return;
    _Atomic uint32_t *called = (_Atomic uint32_t *)&view->page->called[slot - 1];
    if (GA_UNLIKELY(atomic_load_explicit(called, memory_order_relaxed) == 0))
        atomic_store_explicit(called, 1, memory_order_relaxed);
}

// Must be called after an entry was put into the table of blocks. Publishes the number if it has
// grown.
static inline void ga_publish_more(struct ga_root *root) {
    if (GA_UNLIKELY(atomic_load_explicit(&root->blocks.most, memory_order_relaxed) !=
                    atomic_load_explicit(&root->blocks.published, memory_order_relaxed)))
        ga_publish(root);
}

#endif
