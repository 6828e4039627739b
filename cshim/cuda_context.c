// SPDX-License-Identifier: Apache-2.0
#include "cuda_context.h"

#include "admit.h"
#include "cuda_device.h"
#include "cuda_host.h"
#include "cuda_pending.h"
#include "cuda_stream.h"

static uint64_t key_of(ga_context context) {
    return (uint64_t)(uintptr_t)context;
}

void ga_cuda_context_notice(struct ga_root *root, ga_context context, uint32_t device,
                            uint8_t kind) {
    struct ga_entry entry = {
        .key = key_of(context), .bytes = ga_self.number, .device = (uint8_t)device, .kind = kind};
    struct ga_entry old;
    entry.tag = atomic_load(&root->tag);
    ga_self_enter();
    bool known = ga_table_find(&root->contexts, entry.key, &old);
    // What was merely met does not take away what is known better.
    if (known && kind == GA_CUDA_CONTEXT_SEEN && old.device == device) {
        ga_self_leave();
        return;
    }
    bool put = ga_table_put(&root->contexts, &entry, &old);
    ga_self_leave();
    if (!put)
        return;
    if (old.key && old.device == device)
        return;
    if (old.key) // the address of one that ended unseen, used again for another device
        ga_admit_contexts(root, old.device, -1, 0, (uint32_t)old.bytes, &old.tag);
    ga_admit_contexts(root, device, 1, GA_FLAG_NOTICED, ga_self.number, &entry.tag);
}

// Opens the lease before the driver makes what costs memory. NULL: not arbitrated.
static struct ga_root *before_create(ga_cu_device device) {
    struct ga_root *root = ga_root_get();
    if (!root || !ga_cuda_device_know(root, device))
        return NULL;
    ga_session_attach(root, (uint32_t)device);
    return root;
}

static ga_result after_create(struct ga_root *root, ga_result result, const ga_context *context,
                              ga_cu_device device) {
    if (root && result == GA_CUDA_SUCCESS && context && *context)
        ga_cuda_context_notice(root, *context, (uint32_t)device, GA_CUDA_CONTEXT_CREATED);
    return result;
}

ga_result ga_cuda_context_create(GA_FN_cuCtxCreate_v2 *real, ga_context *context,
                                 unsigned int flags, ga_cu_device device) {
    struct ga_root *root = before_create(device);
    return after_create(root, real(context, flags, device), context, device);
}

ga_result ga_cuda_context_create_v3(GA_FN_cuCtxCreate_v3 *real, ga_context *context, void *affinity,
                                    int count, unsigned int flags, ga_cu_device device) {
    struct ga_root *root = before_create(device);
    return after_create(root, real(context, affinity, count, flags, device), context, device);
}

ga_result ga_cuda_context_create_v4(GA_FN_cuCtxCreate_v4 *real, ga_context *context,
                                    void *parameters, unsigned int flags, ga_cu_device device) {
    struct ga_root *root = before_create(device);
    return after_create(root, real(context, parameters, flags, device), context, device);
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

// The entries of a context are marked with a ticket before the driver is called, not looked for
// afterwards: by then its addresses, and its handle, may be somebody else's. A ticket is odd, so
// that it is no address.
static uint64_t mark(struct ga_root *root, uint64_t context) {
    static _Atomic uint64_t tickets;
    uint64_t ticket = atomic_fetch_add(&tickets, 2) + 1;
    ga_self_enter();
    ga_table_mark(&root->blocks, context, ticket);
    ga_table_mark(&root->streams, context, ticket);
    ga_table_mark(&root->hosts, context, ticket);
    ga_self_leave();
    ga_cuda_pending_mark(root, context, ticket);
    return ticket;
}

static void unmark(struct ga_root *root, uint64_t context, uint64_t ticket) {
    ga_self_enter();
    ga_table_mark(&root->blocks, ticket, context);
    ga_table_mark(&root->streams, ticket, context);
    ga_table_mark(&root->hosts, ticket, context);
    ga_self_leave();
    ga_cuda_pending_mark(root, ticket, context);
}

// The context of this ticket is gone, and the driver freed what lived in it.
static void sweep(struct ga_root *root, uint64_t ticket) {
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
    ga_cuda_host_sweep(root, ticket);
    for (uint32_t d = 0; d < GA_DEVICES; d++)
        if (notify[d])
            ga_admit_notify(root, notify[d] - 1);
    ga_cuda_stream_sweep(root, ticket);
}

static void forget(struct ga_root *root, uint64_t context) {
    struct ga_entry entry;
    ga_self_enter();
    bool known = ga_table_take(&root->contexts, context, &entry);
    ga_self_leave();
    atomic_fetch_add(&root->context_epoch, 1);
    if (known)
        ga_admit_contexts(root, entry.device, -1, 0, (uint32_t)entry.bytes, &entry.tag);
}

ga_result ga_cuda_context_destroy(GA_FN_cuCtxDestroy_v2 *real, ga_context context) {
    struct ga_root *root = context ? ga_root_get() : NULL;
    if (!root)
        return real(context);
    uint64_t ticket = mark(root, key_of(context));
    ga_result result = real(context);
    if (result != GA_CUDA_SUCCESS) {
        unmark(root, key_of(context), ticket);
        return result;
    }
    sweep(root, ticket);
    forget(root, key_of(context));
    return result;
}

ga_result ga_cuda_primary_retain(GA_FN_cuDevicePrimaryCtxRetain *real, ga_context *context,
                                 ga_cu_device device) {
    struct ga_root *root = before_create(device);
    ga_result result = real(context, device);
    if (root && result == GA_CUDA_SUCCESS && context && *context)
        ga_cuda_context_notice(root, *context, (uint32_t)device, GA_CUDA_CONTEXT_PRIMARY);
    return result;
}

// The primary context of a device, as far as it was noticed: 0 when it was not.
struct search {
    uint32_t device;
    uint64_t context;
};

static void match_primary(void *arg, const struct ga_entry *e) {
    struct search *s = arg;
    if (e->device == s->device && e->kind != GA_CUDA_CONTEXT_CREATED)
        s->context = e->key;
}

static uint64_t primary_of(struct ga_root *root, ga_cu_device device) {
    struct search s = {(uint32_t)device, 0};
    ga_self_enter();
    ga_table_each(&root->contexts, match_primary, &s);
    ga_self_leave();
    return s.context;
}

static bool is_active(ga_cu_device device) {
    unsigned int flags;
    int active = 0;
    return GA_REAL(cuDevicePrimaryCtxGetState) &&
           GA_REAL(cuDevicePrimaryCtxGetState)(device, &flags, &active) == GA_CUDA_SUCCESS &&
           active != 0;
}

// Release and Reset: the context may end with it, and what lived there with the context.
static ga_result end_primary(ga_result (*real)(ga_cu_device), ga_cu_device device, bool always) {
    struct ga_root *root = ga_root_get();
    uint64_t context = root ? primary_of(root, device) : 0;
    if (!context)
        return real(device);
    uint64_t ticket = mark(root, context);
    ga_result result = real(device);
    if (result != GA_CUDA_SUCCESS || (!always && is_active(device))) {
        unmark(root, context, ticket);
        return result;
    }
    sweep(root, ticket);
    forget(root, context);
    return result;
}

ga_result ga_cuda_primary_release(GA_FN_cuDevicePrimaryCtxRelease_v2 *real, ga_cu_device device) {
    return end_primary(real, device, false);
}

ga_result ga_cuda_primary_reset(GA_FN_cuDevicePrimaryCtxReset_v2 *real, ga_cu_device device) {
    return end_primary(real, device, true);
}
