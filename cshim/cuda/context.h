// SPDX-License-Identifier: Apache-2.0
// Contexts: asked for before they are made, and noticed when they are first met. The calls that end
// them are in cuda/teardown.h.
//
// Each context has a serial number, which is never given out again, though the driver gives
// another context the same handle. Each entry of something that lives in a context stores the
// serial number (ga_entry.context). When the driver has ended a context, its serial number is
// removed from the table of contexts first, then all tables are swept for that number. A thread
// that writes something down looks afterwards whether a context has ended meanwhile
// (ga_cuda_context_check), and if so sweeps again: the sweep may have come before the entry.
#ifndef GA_CUDA_CONTEXT_H
#define GA_CUDA_CONTEXT_H

#include "core/admit.h"
#include "cuda/driver.h"
#include "cuda/state.h"

// The kinds of contexts in the contexts table (ga_entry.kind). The context of an entry is a serial
// number; its maker and how often it was attached are in ga_entry.bytes.
enum ga_cuda_context_kind {
    GA_CUDA_CONTEXT_UNTOLD = 0,  // being met: it is not counted until the daemon has been told
    GA_CUDA_CONTEXT_SEEN = 1,    // met in use: the primary one, made out of our sight
    GA_CUDA_CONTEXT_PRIMARY = 2, // cuDevicePrimaryCtxRetain
    GA_CUDA_CONTEXT_CREATED = 3, // cuCtxCreate
    GA_CUDA_CONTEXT_GREEN = 4,   // cuGreenCtxCreate; in its own space; the number is its primary's
    GA_CUDA_CONTEXT_OF_GREEN = 5 // cuCtxFromGreenCtx: not counted; the number is the primary's
};

// Asks for a context before the driver makes it. False: refused. After true one of the others.
bool ga_cuda_context_ask(struct ga_claim *c, ga_cu_device device);
// The driver has made it: writes it down. The caller has filled in the key, space and kind of the
// entry, and for a green context the primary one's serial number. Any other gets a serial number.
void ga_cuda_context_made(struct ga_claim *c);
void ga_cuda_context_unmade(const struct ga_claim *c);

// Returns the entry of a context, by its handle. If it was not known, it gets a serial number and
// is counted, and the daemon is told.
struct ga_entry ga_cuda_context_notice(struct ga_root *root, ga_context context, uint32_t device,
                                       uint8_t kind);

// Copies the entry of a context, by its handle or by that of a green context. False: there is none.
bool ga_cuda_context_find(struct ga_root *root, uint64_t context, struct ga_entry *entry);
bool ga_cuda_context_find_green(struct ga_root *root, ga_green green, struct ga_entry *entry);
// Takes the handle of a context that stands for another one out of the table.
void ga_cuda_context_forget(struct ga_root *root, uint64_t context);
// Takes the handle of a green context out of the table, and gives back the context's charge.
void ga_cuda_context_forget_green(struct ga_root *root, ga_green green);

// The driver has answered to one of the calls that create one.
ga_result ga_cuda_context_created(struct ga_claim *c, ga_result result, const ga_context *context);

// The driver has ended the context with a serial number: removes the number, sweeps what lived in
// the context, and gives back its charge. 0: the context was not known, but a thread may be about
// to write it down.
void ga_cuda_context_end(struct ga_root *root, uint64_t serial);

// Takes all entries with a serial number out of all tables but that of contexts:
// ga_cuda_teardown_sweep, which knows them all. Set when the driver is met.
typedef void ga_cuda_context_sweep(struct ga_root *root, uint64_t serial);
extern _Atomic(ga_cuda_context_sweep *) ga_cuda_context_sweeps;

// Whether the number is that of a context which has not ended; in brackets of ga_self_enter.
bool ga_cuda_context_lives(struct ga_root *root, uint64_t serial);

// Counts the contexts that ended. Read right before the driver is asked to make something.
static inline uint64_t ga_cuda_context_epoch(struct ga_root *root) {
    return atomic_load_explicit(&ga_cuda(root)->context_epoch, memory_order_acquire);
}
// Whether a context has ended since.
static inline bool ga_cuda_context_any_ended(struct ga_root *root, uint64_t epoch) {
    return GA_UNLIKELY(ga_cuda_context_epoch(root) != epoch);
}

// Something with a serial number was written down. Sweeps for the number if its context has ended
// since the epoch. The lock of the table orders this: if the sweep had passed before the entry was
// put in, the raised epoch is seen here.
void ga_cuda_context_look(struct ga_root *root, uint64_t serial);
static inline void ga_cuda_context_check(struct ga_root *root, uint64_t serial, uint64_t epoch) {
    if (ga_cuda_context_any_ended(root, epoch))
        ga_cuda_context_look(root, serial);
}

#endif
