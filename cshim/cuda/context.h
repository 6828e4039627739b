// SPDX-License-Identifier: Apache-2.0
// The table of CUDA contexts. The daemon is asked for a context before the program makes it. A
// context that was made by a call which the library does not see is written down, and the daemon is
// told, when a thread first uses it. The calls that end contexts are in cuda/teardown.h.
//
// Each context has a serial number, which is never given out again, though the driver gives
// another context the same handle. Each entry of something that lives in a context stores the
// serial number (ga_entry.context). When the driver has ended a context, its serial number is
// removed from the table of contexts first, then all tables are swept for that number. A thread
// that puts an entry into a table checks afterwards whether a context has ended meanwhile
// (ga_cuda_context_check), and if so sweeps again, because the first sweep may have come before the
// entry.
#ifndef GA_CUDA_CONTEXT_H
#define GA_CUDA_CONTEXT_H

#include "core/admit.h"
#include "cuda/driver.h"
#include "cuda/state.h"

// The kinds of contexts in the contexts table (ga_entry.kind). The context of an entry is a serial
// number; its maker and how often it was attached are in ga_entry.bytes.
enum ga_cuda_context_kind {
    GA_CUDA_CONTEXT_UNTOLD = 0,  // found in use; a thread is telling the daemon: not counted yet
    GA_CUDA_CONTEXT_SEEN = 1,    // found in use: most likely the primary one; the daemon was told
    GA_CUDA_CONTEXT_PRIMARY = 2, // made by cuDevicePrimaryCtxRetain
    GA_CUDA_CONTEXT_CREATED = 3, // made by cuCtxCreate
    GA_CUDA_CONTEXT_GREEN = 4,   // made by cuGreenCtxCreate; key in GA_SPACE_CUDA_GREEN; it has the
                                 // serial number of the primary context
    GA_CUDA_CONTEXT_OF_GREEN = 5 // made by cuCtxFromGreenCtx: not counted; it has the serial number
                                 // of the primary context
};

// Asks the daemon for a context before the driver makes it. False: refused. True: after the
// driver's answer the caller must call ga_cuda_context_made, ga_cuda_context_unmade or
// ga_cuda_context_created.
bool ga_cuda_context_ask(struct ga_allocation *c, ga_cu_device device);
// Writes down a context that the driver has made. The caller has filled in the key, space and kind
// of c->entry, and for a green context the serial number of the primary one. Other contexts get a
// new serial number here.
void ga_cuda_context_made(struct ga_allocation *c);
// Gives the context back to the daemon, because the driver has refused.
void ga_cuda_context_unmade(const struct ga_allocation *c);

// Returns the entry of a context, by its handle. If it was not known, it gets a serial number and
// is counted, and the daemon is told.
struct ga_entry ga_cuda_context_notice(struct ga_root *root, ga_context context, uint32_t device,
                                       uint8_t kind);

// Copies the entry of a context, by its handle or by that of a green context. False: there is none.
bool ga_cuda_context_find(struct ga_root *root, uint64_t context, struct ga_entry *entry);
bool ga_cuda_context_find_green(struct ga_root *root, ga_green green, struct ga_entry *entry);
// Takes the handle of a context that was made by cuCtxFromGreenCtx out of the table.
void ga_cuda_context_forget(struct ga_root *root, uint64_t context);
// Takes the handle of a green context out of the table, and gives back the context's charge.
void ga_cuda_context_forget_green(struct ga_root *root, ga_green green);

// Settles a context after a call that creates one (cuCtxCreate): made or unmade, as result says.
// Returns result.
ga_result ga_cuda_context_created(struct ga_allocation *c, ga_result result,
                                  const ga_context *context);

// Takes a context that the driver has ended out of the table, gives it back to the daemon, and
// sweeps all entries with its serial number. serial 0: the context was not in the table; then only
// raises the epoch, because another thread may be about to write it down.
void ga_cuda_context_end(struct ga_root *root, uint64_t serial);

// The function that takes all entries with a serial number out of all other tables. It is
// ga_cuda_teardown_sweep, and is set when the driver is found: a pointer, because this file must
// not depend on teardown.c.
typedef void ga_cuda_context_sweep(struct ga_root *root, uint64_t serial);
extern _Atomic(ga_cuda_context_sweep *) ga_cuda_context_sweeps;

// Reports whether a serial number is that of a context which has not ended. The caller has called
// ga_self_enter.
bool ga_cuda_context_lives(struct ga_root *root, uint64_t serial);

// Returns a number that is raised whenever a context ends. A wrapper reads it right before it has
// the driver make something.
static inline uint64_t ga_cuda_context_epoch(struct ga_root *root) {
    return atomic_load_explicit(&ga_cuda(root)->context_epoch, memory_order_acquire);
}
// Reports whether a context has ended since an epoch was read.
static inline bool ga_cuda_context_any_ended(struct ga_root *root, uint64_t epoch) {
    return GA_UNLIKELY(ga_cuda_context_epoch(root) != epoch);
}

// Must be called after an entry with a serial number was put into a table. Sweeps for the number if
// its context has ended since the epoch. The thread that ends a context raises the epoch before it
// sweeps, and both threads lock the table: if the sweep came before the entry, this thread sees the
// raised epoch.
void ga_cuda_context_look(struct ga_root *root, uint64_t serial);
static inline void ga_cuda_context_check(struct ga_root *root, uint64_t serial, uint64_t epoch) {
    if (ga_cuda_context_any_ended(root, epoch))
        ga_cuda_context_look(root, serial);
}

#endif
