// SPDX-License-Identifier: Apache-2.0
// Counts blocks of page-locked host memory (host.h), in the table ga_root.hosts.
#include "cuda/host.h"

#include "core/host.h"

// Reserves bytes. Sizes above GA_CREDIT_LIMIT do not fit into an entry: the driver refuses them.
// False: refused.
static bool acquire(struct ga_allocation *c, struct ga_root *root, uint64_t bytes) {
    c->root = NULL;
    c->entry.bytes = bytes;
    if (bytes == 0 || bytes > GA_CREDIT_LIMIT)
        return true;
    if (!ga_host_acquire(root, bytes))
        return false;
    c->root = root;
    c->epoch = ga_cuda_context_epoch(root);
    return true;
}

// Without a current context nothing is reserved, because the driver refuses the call.
bool ga_cuda_host_open(struct ga_allocation *c, uint64_t bytes) {
    *c = (struct ga_allocation){.root = NULL};
    if (!ga_allocation_begin(c))
        return false;
    bool known = c->root && ga_cuda_device_current(c->root, &c->entry.context) >= 0;
    return acquire(c, c->root, known ? bytes : 0);
}

bool ga_cuda_host_open_pooled(struct ga_allocation *c, struct ga_root *root, uint64_t bytes) {
    *c = (struct ga_allocation){.root = NULL};
    return acquire(c, root, bytes);
}

// Inserts an entry. If there is no memory for the entry, its bytes stay counted: the count may be
// too high, never too low.
static void insert(struct ga_root *root, const struct ga_entry *entry) {
    struct ga_entry old = {0};
    ga_self_put(&root->hosts, entry, &old);
    if (old.key) // freed by a call that the library has not seen
        ga_host_release(root, old.bytes);
}

ga_result ga_cuda_host_settle(struct ga_allocation *c, ga_result result, void *const *at,
                              enum ga_cuda_host_kind kind) {
    if (!c->root)
        return result;
    if (result != GA_CUDA_SUCCESS) {
        ga_host_release(c->root, c->entry.bytes);
        return result;
    }
    c->entry.key = (uint64_t)(uintptr_t)*at;
    c->entry.tag = 1;
    c->entry.kind = (uint8_t)kind;
    insert(c->root, &c->entry);
    ga_cuda_context_check(c->root, c->entry.context, c->epoch);
    return result;
}

bool ga_cuda_host_remove(struct ga_allocation *c, void *at, enum ga_cuda_host_kind kind) {
    struct ga_entry old;
    c->root = ga_root_get();
    if (!c->root || !at)
        return false;
    c->epoch = ga_cuda_context_epoch(c->root);
    ga_self_enter();
    bool found = ga_table_remove(&c->root->hosts, (uint64_t)(uintptr_t)at, &c->entry);
    if (found && c->entry.kind != (uint8_t)kind) {
        ga_table_put(&c->root->hosts, &c->entry, &old);
        found = false;
    }
    ga_self_leave();
    return found;
}

void ga_cuda_host_freed(const struct ga_allocation *c, ga_result result) {
    if (result == GA_CUDA_SUCCESS) {
        ga_host_release(c->root, c->entry.bytes);
        return;
    }
    insert(c->root, &c->entry);
    ga_cuda_context_check(c->root, c->entry.context, c->epoch);
}

void ga_cuda_host_sweep(struct ga_root *root, uint64_t serial) {
    uint64_t bytes = 0;
    struct ga_entry e;
    ga_self_enter();
    struct ga_walk walk = ga_table_walk(&root->hosts);
    while (ga_table_remove_next(&walk, serial, &e))
        bytes += e.bytes;
    ga_self_leave();
    if (bytes)
        ga_host_release(root, bytes);
}
