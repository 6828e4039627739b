// SPDX-License-Identifier: Apache-2.0
#include "cuda_context.h"

#include "admit.h"
#include "cuda_bound.h"
#include "cuda_device.h"
#include "cuda_hold.h"
#include "cuda_host.h"
#include "cuda_import.h"
#include "cuda_late.h"
#include "cuda_pending.h"
#include "cuda_stream.h"

// In ga_entry.bytes: the thread that made the context, and above it the uses that cuCtxAttach
// added.
#define ATTACHED (1ull << 32)

static uint64_t key_of(ga_context context) {
    return (uint64_t)(uintptr_t)context;
}

static void give_back(struct ga_root *root, const struct ga_entry *entry) {
    uint16_t tag = entry->tag;
    if (entry->kind != GA_CUDA_CONTEXT_OF_GREEN)
        ga_admit_contexts(root, entry->device, -1, 0, (uint32_t)entry->bytes, &tag);
}

bool ga_cuda_context_ask(struct ga_cuda_context_ask *ask, ga_cu_device device) {
    struct ga_root *root = ga_root_get();
    ask->root = NULL;
    if (!root)
        return !ga_root_denies();
    if (!ga_cuda_device_know(root, device))
        return true; // the driver alone decides
    ask->device = (uint32_t)device;
    if (!ga_admit_contexts(root, ask->device, 1, 0, ga_self.number, &ask->tag))
        return false;
    ask->root = root;
    return true;
}

void ga_cuda_context_unmade(const struct ga_cuda_context_ask *ask) {
    struct ga_entry entry = {
        .bytes = ga_self.number, .device = (uint8_t)ask->device, .tag = ask->tag};
    if (ask->root)
        give_back(ask->root, &entry);
}

// One that another thread has met meanwhile, or that ended out of our sight, was counted already.
void ga_cuda_context_made(const struct ga_cuda_context_ask *ask, const struct ga_entry *made) {
    struct ga_entry old = {0};
    if (!ask->root)
        return;
    struct ga_entry entry = *made;
    entry.bytes = ga_self.number;
    entry.device = (uint8_t)ask->device;
    entry.tag = ask->tag;
    ga_self_enter();
    bool put = ga_table_put(&ask->root->contexts, &entry, &old);
    ga_self_leave();
    ga_cuda_late_made(ask->root, entry.key);
    // Without memory to remember it by it stays counted.
    if (put && old.key)
        give_back(ask->root, &old);
}

uint64_t ga_cuda_context_notice(struct ga_root *root, ga_context context, uint32_t device,
                                uint8_t kind) {
    struct ga_entry entry = {
        .key = key_of(context), .bytes = ga_self.number, .device = (uint8_t)device, .kind = kind};
    struct ga_entry old = {0};
    entry.tag = atomic_load(&root->tag);
    ga_self_enter();
    // What was merely met does not take away what is known better.
    bool known = ga_table_find(&root->contexts, entry.key, &old) && old.device == device;
    bool put = !known && ga_table_put(&root->contexts, &entry, &old);
    ga_self_leave();
    if (put)
        ga_cuda_late_made(root, entry.key);
    if (known)
        return old.kind == GA_CUDA_CONTEXT_OF_GREEN ? old.context : entry.key;
    if (!put || (old.key && old.device == device))
        return entry.key;
    if (old.key) // the address of one that ended unseen, used again for another device
        give_back(root, &old);
    ga_admit_contexts(root, device, 1, GA_FLAG_NOTICED, ga_self.number, &entry.tag);
    return entry.key;
}

static ga_result settle(const struct ga_cuda_context_ask *ask, ga_result result,
                        const ga_context *context) {
    struct ga_entry made = {.kind = GA_CUDA_CONTEXT_CREATED};
    if (result != GA_CUDA_SUCCESS) {
        ga_cuda_context_unmade(ask);
        return result;
    }
    made.key = key_of(*context);
    ga_cuda_context_made(ask, &made);
    return result;
}

ga_result ga_cuda_context_create(GA_FN_cuCtxCreate_v2 *real, ga_context *context,
                                 unsigned int flags, ga_cu_device device) {
    struct ga_cuda_context_ask ask;
    if (!ga_cuda_context_ask(&ask, device))
        return GA_CUDA_OUT_OF_MEMORY;
    return settle(&ask, real(context, flags, device), context);
}

ga_result ga_cuda_context_create_v3(GA_FN_cuCtxCreate_v3 *real, ga_context *context, void *affinity,
                                    int count, unsigned int flags, ga_cu_device device) {
    struct ga_cuda_context_ask ask;
    if (!ga_cuda_context_ask(&ask, device))
        return GA_CUDA_OUT_OF_MEMORY;
    return settle(&ask, real(context, affinity, count, flags, device), context);
}

ga_result ga_cuda_context_create_v4(GA_FN_cuCtxCreate_v4 *real, ga_context *context,
                                    void *parameters, unsigned int flags, ga_cu_device device) {
    struct ga_cuda_context_ask ask;
    if (!ga_cuda_context_ask(&ask, device))
        return GA_CUDA_OUT_OF_MEMORY;
    return settle(&ask, real(context, parameters, flags, device), context);
}

ga_result ga_cuda_context_create_vdpau(GA_FN_cuVDPAUCtxCreate_v2 *real, ga_context *context,
                                       unsigned int flags, ga_cu_device device, uint32_t vdpau,
                                       void *get_proc_address) {
    struct ga_cuda_context_ask ask;
    if (!ga_cuda_context_ask(&ask, device))
        return GA_CUDA_OUT_OF_MEMORY;
    return settle(&ask, real(context, flags, device, vdpau, get_proc_address), context);
}

// What leaves the tables with a context, by device.
struct leaving {
    uint16_t tag;
    uint64_t bytes[GA_DEVICES];
};

static void add_block(void *arg, const struct ga_entry *e) {
    struct leaving *l = arg;
    if (e->tag == l->tag)
        l->bytes[e->device] += e->bytes;
}

// The contexts that stand for another one, as many as anybody has.
#define ALIASES 32
struct aliases {
    uint64_t context;
    uint32_t count;
    uint64_t key[ALIASES];
};

static void match_alias(void *arg, const struct ga_entry *e) {
    struct aliases *a = arg;
    if (e->kind == GA_CUDA_CONTEXT_OF_GREEN && e->context == a->context && a->count < ALIASES)
        a->key[a->count++] = e->key;
}

// Frees that are pending know the context that their stream named.
static void mark_pending(struct ga_root *root, uint64_t context, uint64_t becomes) {
    struct aliases a = {.context = context};
    ga_self_enter();
    ga_table_each(&root->contexts, match_alias, &a);
    ga_self_leave();
    ga_cuda_pending_mark(root, context, becomes);
    for (uint32_t i = 0; i < a.count; i++)
        ga_cuda_pending_mark(root, a.key[i], becomes);
}

// The entries of a context are marked with a ticket before the driver is called, not looked for
// afterwards: by then its addresses, and its handle, may be somebody else's. A ticket is odd, so
// that it is no address.
uint64_t ga_cuda_context_ticket(void) {
    static _Atomic uint64_t tickets;
    return atomic_fetch_add(&tickets, 2) + 1;
}

uint64_t ga_cuda_context_mark(struct ga_root *root, uint64_t context) {
    uint64_t ticket = ga_cuda_context_ticket();
    ga_cuda_late_begin(root, context, ticket);
    ga_self_enter();
    ga_table_mark(&root->blocks, context, ticket);
    ga_table_mark(&root->streams, context, ticket);
    ga_table_mark(&root->hosts, context, ticket);
    ga_table_mark(&root->imports, context, ticket);
    ga_self_leave();
    ga_cuda_bound_mark(root, context, ticket);
    mark_pending(root, context, ticket);
    return ticket;
}

void ga_cuda_context_unmark(struct ga_root *root, uint64_t context, uint64_t ticket) {
    ga_cuda_late_end(root, ticket, false);
    ga_self_enter();
    ga_table_mark(&root->blocks, ticket, context);
    ga_table_mark(&root->streams, ticket, context);
    ga_table_mark(&root->hosts, ticket, context);
    ga_table_mark(&root->imports, ticket, context);
    ga_self_leave();
    ga_cuda_bound_mark(root, ticket, context);
    ga_cuda_pending_mark(root, ticket, context);
}

void ga_cuda_context_sweep(struct ga_root *root, uint64_t ticket) {
    struct leaving l;
    ga_os_zero(&l, sizeof l);
    uint32_t notify[GA_DEVICES];
    ga_move_begin(root);
    l.tag = atomic_load(&root->tag);
    ga_table_drain(&root->blocks, ticket, add_block, &l);
    for (uint32_t d = 0; d < GA_DEVICES; d++)
        notify[d] = ga_give(root, d, l.bytes[d], l.tag);
    ga_move_end();
    ga_cuda_pending_sweep(root, ticket);
    ga_cuda_bound_sweep(root, ticket);
    ga_cuda_host_sweep(root, ticket);
    ga_cuda_import_sweep(root, ticket);
    for (uint32_t d = 0; d < GA_DEVICES; d++)
        if (notify[d])
            ga_admit_notify(root, notify[d] - 1);
    ga_cuda_stream_sweep(root, ticket);
}

void ga_cuda_context_forget(struct ga_root *root, uint64_t key) {
    struct ga_entry entry;
    ga_self_enter();
    bool known = ga_table_take(&root->contexts, key, &entry);
    ga_self_leave();
    atomic_fetch_add(&root->context_epoch, 1);
    if (known)
        give_back(root, &entry);
}

void ga_cuda_context_gone(struct ga_root *root, uint64_t context, uint64_t ticket) {
    ga_cuda_late_end(root, ticket, true);
    ga_cuda_context_sweep(root, ticket);
    ga_cuda_context_forget(root, context);
}

static ga_result end(struct ga_root *root, ga_result (*real)(ga_context), ga_context context) {
    uint64_t ticket = ga_cuda_context_mark(root, key_of(context));
    ga_result result = real(context);
    if (result == GA_CUDA_SUCCESS)
        ga_cuda_context_gone(root, key_of(context), ticket);
    else
        ga_cuda_context_unmark(root, key_of(context), ticket);
    ga_cuda_hold_settle(root);
    return result;
}

ga_result ga_cuda_context_destroy(GA_FN_cuCtxDestroy_v2 *real, ga_context context) {
    struct ga_root *root = context ? ga_root_get() : NULL;
    return root ? end(root, real, context) : real(context);
}

// Adds to the uses of a context beyond its first. False: it has no such.
static bool add_use(struct ga_root *root, ga_context context, bool more) {
    struct ga_entry entry;
    struct ga_entry old;
    ga_self_enter();
    bool can = ga_table_find(&root->contexts, key_of(context), &entry) &&
               (more || entry.bytes >= ATTACHED);
    if (can) {
        entry.bytes += more ? ATTACHED : 0 - ATTACHED;
        ga_table_put(&root->contexts, &entry, &old);
    }
    ga_self_leave();
    return can;
}

ga_result ga_cuda_context_attach(GA_FN_cuCtxAttach *real, ga_context *context, unsigned int flags) {
    ga_result result = real(context, flags);
    uint64_t current;
    struct ga_root *root = result == GA_CUDA_SUCCESS ? ga_root_get() : NULL;
    if (root && ga_cuda_device_current(root, &current) >= 0)
        add_use(root, *context, true);
    return result;
}

// The last detach destroys.
ga_result ga_cuda_context_detach(GA_FN_cuCtxDetach *real, ga_context context) {
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

ga_result ga_cuda_context_set(GA_FN_cuCtxSetCurrent *real, ga_context context) {
    struct ga_root *root = ga_root_get();
    uint64_t home;
    if (root && context && !ga_cuda_hold_context(root, context))
        return GA_CUDA_OUT_OF_MEMORY;
    ga_result result = real(context);
    if (root && result == GA_CUDA_SUCCESS && context)
        ga_cuda_device_current(root, &home);
    if (root)
        ga_cuda_hold_settle(root);
    return result;
}
