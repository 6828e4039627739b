// SPDX-License-Identifier: Apache-2.0
// What the driver makes for one thread in a context that another one ends, before it is written
// down: the sweep of the context does not find it.
//
// Who writes something down looks afterwards whether a context was, or is, being ended. Where it
// is the one, the entry joins those of the end (its ticket), or is swept by itself.
#ifndef GA_CUDA_LATE_H
#define GA_CUDA_LATE_H

#include "core/root.h"
#include "cuda/state.h"

// Around a call that may end a context: before its entries are marked with the ticket, and, when
// the driver has answered, before those are swept or get their context back.
void ga_cuda_late_begin(struct ga_root *root, uint64_t context, uint64_t ticket);
void ga_cuda_late_end(struct ga_root *root, uint64_t ticket, bool ended);
// A context was made. The one that had its handle has ended, though that one's end may not yet
// have been seen.
void ga_cuda_late_made(struct ga_root *root, uint64_t context);

// Whether a context has ended since the epoch was read.
bool ga_cuda_late_ended(struct ga_root *root, uint64_t context, uint64_t epoch);

// One that nothing has yet.
uint64_t ga_cuda_late_ticket(void);

// What takes the entries of a ticket out of all tables: ga_cuda_ending_sweep, which knows them
// all. Set when the driver is met.
typedef void ga_cuda_late_sweep(struct ga_root *root, uint64_t ticket);
extern _Atomic(ga_cuda_late_sweep *) ga_cuda_late_sweeps;

void ga_cuda_late_join(struct ga_root *root, struct ga_table *table, const struct ga_entry *entry,
                       uint64_t epoch);

// Right before the driver is asked.
static inline uint64_t ga_cuda_late_epoch(struct ga_root *root) {
    return atomic_load_explicit(&ga_cuda(root)->context_epoch, memory_order_acquire);
}

// Whether a context is being ended, or has ended since. contexts_ending is read first:
// ga_cuda_late_end raises the epoch before it lowers that, so an end that is over by the first load
// shows in the second.
static inline bool ga_cuda_late_any(struct ga_root *root, uint64_t epoch) {
    return GA_UNLIKELY(
        atomic_load_explicit(&ga_cuda(root)->contexts_ending, memory_order_acquire) != 0 ||
        atomic_load_explicit(&ga_cuda(root)->context_epoch, memory_order_acquire) != epoch);
}

// When the entry is in its table. The table's own lock orders this: whoever marked, or swept, that
// shard before has told of it by then.
static inline void ga_cuda_late_look(struct ga_root *root, struct ga_table *table,
                                     const struct ga_entry *entry, uint64_t epoch) {
    if (ga_cuda_late_any(root, epoch))
        ga_cuda_late_join(root, table, entry, epoch);
}

// The same for an item of a list, whose lock is held: *context becomes the ticket of its end, or
// the context again that was not ended after all. Returns a ticket by which the caller sweeps the
// list afterwards, or 0.
uint64_t ga_cuda_late_turn(struct ga_root *root, uint64_t *context, uint64_t epoch);

#endif
