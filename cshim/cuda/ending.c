// SPDX-License-Identifier: Apache-2.0
#include "cuda/ending.h"

#include "core/admit.h"
#include "core/import.h"
#include "cuda/bound.h"
#include "cuda/context.h"
#include "cuda/device.h"
#include "cuda/hold.h"
#include "cuda/host.h"
#include "cuda/late.h"
#include "cuda/pending.h"
#include "cuda/state.h"
#include "cuda/stream.h"

// In ga_entry.bytes: the thread that made the context, and above it the uses that cuCtxAttach
// added.
#define ATTACHED (1ull << 32)

static uint64_t key_of(ga_context context) {
    return (uint64_t)(uintptr_t)context;
}

#define ALIASES 32 // contexts that stand for another one, as many as anybody has

// Frees that are pending know the context that their stream named.
static void mark_pending(struct ga_root *root, uint64_t context, uint64_t becomes) {
    uint64_t alias[ALIASES];
    uint32_t count = 0;
    struct ga_entry e;
    struct ga_walk walk = ga_self_walk(&ga_cuda(root)->contexts);
    while (ga_self_next(&walk, &e))
        if (e.kind == GA_CUDA_CONTEXT_OF_GREEN && e.context == context && count < ALIASES)
            alias[count++] = e.key;
    ga_cuda_pending_mark(root, context, becomes);
    for (uint32_t i = 0; i < count; i++)
        ga_cuda_pending_mark(root, alias[i], becomes);
}

// Changes the context of all that lives in one, but of what is pending.
static void move_entries(struct ga_root *root, uint64_t context, uint64_t becomes) {
    ga_self_enter();
    ga_table_mark(&root->blocks, context, becomes);
    ga_table_mark(&root->streams, context, becomes);
    ga_table_mark(&root->hosts, context, becomes);
    ga_self_leave();
    ga_self_lock(&root->imports_lock);
    ga_table_mark(&root->imports, context, becomes);
    ga_self_unlock(&root->imports_lock);
    ga_cuda_bound_mark(root, context, becomes);
}

uint64_t ga_cuda_ending_mark(struct ga_root *root, uint64_t context) {
    uint64_t ticket = ga_cuda_late_ticket();
    ga_cuda_late_begin(root, context, ticket);
    move_entries(root, context, ticket);
    mark_pending(root, context, ticket);
    return ticket;
}

void ga_cuda_ending_unmark(struct ga_root *root, uint64_t context, uint64_t ticket) {
    ga_cuda_late_end(root, ticket, false);
    move_entries(root, ticket, context);
    ga_cuda_pending_mark(root, ticket, context);
}

void ga_cuda_ending_sweep(struct ga_root *root, uint64_t ticket) {
    ga_admit_sweep(root, ticket, 1);
    ga_cuda_pending_sweep(root, ticket);
    ga_cuda_bound_sweep(root, ticket);
    ga_cuda_host_sweep(root, ticket);
    ga_import_sweep(root, ticket);
    ga_cuda_stream_sweep(root, ticket);
}

void ga_cuda_ending_gone(struct ga_root *root, uint64_t context, uint64_t ticket) {
    ga_cuda_late_end(root, ticket, true);
    ga_cuda_ending_sweep(root, ticket);
    ga_cuda_context_forget(root, context);
}

static ga_result end(struct ga_root *root, ga_result (*real)(ga_context), ga_context context) {
    uint64_t ticket = ga_cuda_ending_mark(root, key_of(context));
    ga_result result = real(context);
    if (result == GA_CUDA_SUCCESS)
        ga_cuda_ending_gone(root, key_of(context), ticket);
    else
        ga_cuda_ending_unmark(root, key_of(context), ticket);
    ga_cuda_hold_settle(root);
    return result;
}

ga_result ga_cuda_ending_destroy(GA_FN_cuCtxDestroy_v2 *real, ga_context context) {
    struct ga_root *root = context ? ga_root_get() : NULL;
    return root ? end(root, real, context) : real(context);
}

// Adds to the uses of a context beyond its first. False: it has no such.
static bool add_use(struct ga_root *root, ga_context context, bool more) {
    struct ga_entry entry;
    struct ga_entry old;
    ga_self_enter();
    bool can = ga_table_find(&ga_cuda(root)->contexts, key_of(context), &entry) &&
               (more || entry.bytes >= ATTACHED);
    if (can) {
        entry.bytes += more ? ATTACHED : 0 - ATTACHED;
        ga_table_put(&ga_cuda(root)->contexts, &entry, &old);
    }
    ga_self_leave();
    return can;
}

ga_result ga_cuda_ending_attach(GA_FN_cuCtxAttach *real, ga_context *context, unsigned int flags) {
    ga_result result = real(context, flags);
    uint64_t current;
    struct ga_root *root = result == GA_CUDA_SUCCESS ? ga_root_get() : NULL;
    if (root && ga_cuda_device_current(root, &current) >= 0)
        add_use(root, *context, true);
    return result;
}

// The last detach destroys.
ga_result ga_cuda_ending_detach(GA_FN_cuCtxDetach *real, ga_context context) {
    struct ga_root *root = context ? ga_root_get() : NULL;
    if (!root)
        return real(context);
    if (!add_use(root, context, false))
        return end(root, real, context);
    ga_result result = real(context);
    if (result != GA_CUDA_SUCCESS)
        add_use(root, context, true);
    return result;
}
