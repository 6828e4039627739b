// SPDX-License-Identifier: Apache-2.0
// Contexts: asked for before they are made, and noticed when they are first met. Their end is
// cuda/ending.h.
#ifndef GA_CUDA_CONTEXT_H
#define GA_CUDA_CONTEXT_H

#include "core/root.h"
#include "cuda/driver.h"

// What the contexts table says of a context (ga_entry.kind). Its maker and how often it was
// attached are in ga_entry.bytes.
enum ga_cuda_context_kind {
    GA_CUDA_CONTEXT_UNTOLD = 0,  // being met: it is not counted until the daemon has been told
    GA_CUDA_CONTEXT_SEEN = 1,    // met in use: the primary one, made out of our sight
    GA_CUDA_CONTEXT_PRIMARY = 2, // cuDevicePrimaryCtxRetain
    GA_CUDA_CONTEXT_CREATED = 3, // cuCtxCreate
    GA_CUDA_CONTEXT_GREEN = 4,   // cuGreenCtxCreate; in its own space; `context` is its primary one
    GA_CUDA_CONTEXT_OF_GREEN = 5 // cuCtxFromGreenCtx: none of its own, and not counted
};

// A context that the driver is about to make. root is NULL where it is not arbitrated.
struct ga_cuda_context_ask {
    struct ga_root *root;
    uint32_t device;
    uint16_t tag;
};

// Asks for a context before the driver makes it. False: refused. After true one of the others.
bool ga_cuda_context_ask(struct ga_cuda_context_ask *ask, ga_cu_device device);
// The same for a further one that comes with it, by the same call of the driver.
bool ga_cuda_context_ask_with_it(struct ga_cuda_context_ask *ask, ga_cu_device device);
void ga_cuda_context_made(const struct ga_cuda_context_ask *ask, const struct ga_entry *made);
void ga_cuda_context_unmade(const struct ga_cuda_context_ask *ask);

// Counts a context that was not known; tells the daemon. epoch: of ga_cuda_late_epoch, from before
// the driver was asked, by whose answer it is there. Returns where it is charged: itself, or the
// primary context that one of a green context stands for.
uint64_t ga_cuda_context_notice(struct ga_root *root, ga_context context, uint32_t device,
                                uint8_t kind, uint64_t epoch);

// Copies the entry of a context, by its handle or by that of a green context. False: there is none.
bool ga_cuda_context_find(struct ga_root *root, uint64_t context, struct ga_entry *entry);
bool ga_cuda_context_find_green(struct ga_root *root, ga_green green, struct ga_entry *entry);
// Takes a context that has ended out of the table, and gives back its charge.
void ga_cuda_context_forget(struct ga_root *root, uint64_t context);
void ga_cuda_context_forget_green(struct ga_root *root, ga_green green);

// The driver has answered to one of the calls that create one.
ga_result ga_cuda_context_created(const struct ga_cuda_context_ask *ask, ga_result result,
                                  const ga_context *context);

#endif
