// SPDX-License-Identifier: Apache-2.0
// The table of CUDA contexts. The library asks the daemon before the program makes a context. If
// the program makes a context by a call that the library does not see, a thread finds it when it
// first uses it. The thread then inserts it into the table and reports it to the daemon. The calls
// that end contexts are in cuda/teardown.h.
//
// Each context has a serial number, which is never used again, although the driver may give the
// same handle to another context. Each entry of an object that lives in a context stores the serial
// number (ga_entry.context).
//
// When the driver has ended a context, the ending thread removes its serial number from the table
// of contexts. Then it raises the epoch, and last it sweeps all tables for the serial number. A
// thread that inserts an entry checks the epoch afterwards (ga_cuda_context_check). If a context
// has ended since the thread read the epoch, the thread sweeps again, because the first sweep may
// have run before the insertion.
#ifndef GA_CUDA_CONTEXT_H
#define GA_CUDA_CONTEXT_H

#include "core/admit.h"
#include "cuda/driver.h"
#include "cuda/state.h"

// The kinds of contexts in the contexts table (ga_entry.kind). The context of an entry is a serial
// number; its maker and how often it was attached are in ga_entry.bytes.
enum ga_cuda_context_kind {
    GA_CUDA_CONTEXT_UNREPORTED =
        0, // found in use, and not yet counted: a thread is reporting it to the daemon
    GA_CUDA_CONTEXT_FOUND = 1,   // found in use and reported: most likely the primary context
    GA_CUDA_CONTEXT_PRIMARY = 2, // made by cuDevicePrimaryCtxRetain
    GA_CUDA_CONTEXT_CREATED = 3, // made by cuCtxCreate
    GA_CUDA_CONTEXT_GREEN = 4,   // made by cuGreenCtxCreate; the key is in GA_SPACE_CUDA_GREEN, the
                                 // serial number is that of the primary context
    GA_CUDA_CONTEXT_FROM_GREEN = 5 // made by cuCtxFromGreenCtx, and not counted; the serial number
                                   // is that of the primary context
};

// Asks the daemon for a context before the driver makes it. The caller has set c->full. False:
// refused. True: after the driver's answer the caller must call ga_cuda_context_made,
// ga_cuda_context_not_made or ga_cuda_context_created.
bool ga_cuda_context_ask(struct ga_allocation *c, ga_cu_device device);
// Inserts a context that the driver has made. The caller has set the key, space and kind of
// c->entry, and for a green context the serial number of the primary context. Other contexts get a
// new serial number here.
void ga_cuda_context_made(struct ga_allocation *c);
// Releases the context at the daemon, because the driver has refused it.
void ga_cuda_context_not_made(const struct ga_allocation *c);

// Returns the entry of a context, given its handle. A context that is not in the table gets a
// serial number, is counted, and is reported to the daemon.
struct ga_entry ga_cuda_context_notice(struct ga_root *root, ga_context context, uint32_t device,
                                       uint8_t kind);

// Copy the entry of a context, given its handle or the handle of a green context. False: not in the
// table.
bool ga_cuda_context_find(struct ga_root *root, uint64_t context, struct ga_entry *entry);
bool ga_cuda_context_find_green(struct ga_root *root, ga_green green, struct ga_entry *entry);
// Removes the handle of a context that was made by cuCtxFromGreenCtx.
void ga_cuda_context_forget(struct ga_root *root, uint64_t context);
// Removes the handle of a green context, and releases the context.
void ga_cuda_context_forget_green(struct ga_root *root, ga_green green);

// Settles a context after a call that creates one (cuCtxCreate), according to result. Returns
// result.
ga_result ga_cuda_context_created(struct ga_allocation *c, ga_result result,
                                  const ga_context *context);

// Removes a context that the driver has ended, releases it at the daemon, and sweeps all entries
// with its serial number. serial 0: the context was not in the table. Then this only raises the
// epoch, because another thread may be about to insert the context.
void ga_cuda_context_end(struct ga_root *root, uint64_t serial);

// Removes all entries with a serial number from all other tables. The pointer is set to
// ga_cuda_teardown_sweep when the driver is found. It is a pointer because this file must not
// depend on teardown.c.
typedef void ga_cuda_context_sweep(struct ga_root *root, uint64_t serial);
extern _Atomic(ga_cuda_context_sweep *) ga_cuda_context_sweep_function;

// Reports whether a serial number is that of a context that has not ended. The caller has called
// ga_self_enter.
bool ga_cuda_context_exists(struct ga_root *root, uint64_t serial);

// Returns the epoch: a number that rises whenever a context ends. A wrapper reads it right before
// the driver call that makes an object.
static inline uint64_t ga_cuda_context_epoch(struct ga_root *root) {
    return atomic_load_explicit(&ga_cuda(root)->context_epoch, memory_order_acquire);
}
// Reports whether a context has ended since an epoch was read.
static inline bool ga_cuda_context_any_ended(struct ga_root *root, uint64_t epoch) {
    return GA_UNLIKELY(ga_cuda_context_epoch(root) != epoch);
}

// Sweeps for a serial number if its context has ended since the epoch. Must be called after an
// entry with that serial number was inserted. The thread that ends a context raises the epoch
// before it sweeps, and both threads lock the table. So if the sweep came before the insertion,
// this thread sees the raised epoch.
void ga_cuda_context_sweep_if_ended(struct ga_root *root, uint64_t serial);
static inline void ga_cuda_context_check(struct ga_root *root, uint64_t serial, uint64_t epoch) {
    if (ga_cuda_context_any_ended(root, epoch))
        ga_cuda_context_sweep_if_ended(root, serial);
}

#endif
