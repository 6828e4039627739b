// SPDX-License-Identifier: Apache-2.0
#include "cuda/host.h"

#include "core/host.h"

// False: refused. What no entry can hold the driver refuses.
static bool take(struct ga_cuda_claim *c, struct ga_root *root, uint64_t bytes) {
    c->root = NULL;
    c->bytes = bytes;
    if (bytes == 0 || bytes > GA_CREDIT_LIMIT)
        return true;
    if (!ga_host_take(root, bytes))
        return false;
    c->root = root;
    c->epoch = ga_cuda_late_epoch(root);
    return true;
}

// Without a context the driver refuses.
bool ga_cuda_host_open(struct ga_cuda_claim *c, uint64_t bytes) {
    if (!ga_cuda_claim_begin(c))
        return false;
    bool known = c->root && ga_cuda_device_current(c->root, &c->context) >= 0;
    return take(c, c->root, known ? bytes : 0);
}

bool ga_cuda_host_open_pooled(struct ga_cuda_claim *c, struct ga_root *root, uint64_t bytes) {
    *c = (struct ga_cuda_claim){.context = 0};
    return take(c, root, bytes);
}

static bool take_out(struct ga_root *root, void *at, enum ga_cuda_host_kind kind,
                     struct ga_entry *entry) {
    struct ga_entry old;
    ga_self_enter();
    bool found = ga_table_take(&root->hosts, (uint64_t)(uintptr_t)at, entry);
    if (found && entry->kind != (uint8_t)kind) {
        ga_table_put(&root->hosts, entry, &old);
        found = false;
    }
    ga_self_leave();
    return found;
}

// Without memory to remember it by, it stays counted: that errs on the side of the cap.
static void put_in(struct ga_root *root, const struct ga_entry *entry) {
    struct ga_entry old = {0};
    ga_self_enter();
    ga_table_put(&root->hosts, entry, &old);
    ga_self_leave();
    if (old.key) // ended out of our sight
        ga_host_give(root, old.bytes);
}

ga_result ga_cuda_host_settle(const struct ga_cuda_claim *c, ga_result result, void *const *at,
                              enum ga_cuda_host_kind kind) {
    if (!c->root)
        return result;
    if (result != GA_CUDA_SUCCESS) {
        ga_host_give(c->root, c->bytes);
        return result;
    }
    struct ga_entry entry = {.key = (uint64_t)(uintptr_t)*at,
                             .bytes = c->bytes,
                             .context = c->context,
                             .tag = 1,
                             .kind = (uint8_t)kind};
    put_in(c->root, &entry);
    ga_cuda_late_look(c->root, &c->root->hosts, &entry, c->epoch);
    return result;
}

bool ga_cuda_host_begin_free(struct ga_root *root, ga_address address, struct ga_entry *entry) {
    return address && take_out(root, (void *)(uintptr_t)address, GA_CUDA_HOST_POOLED, entry);
}

void ga_cuda_host_end_free(struct ga_root *root, ga_result result, const struct ga_entry *entry,
                           uint64_t epoch) {
    if (result == GA_CUDA_SUCCESS) {
        ga_host_give(root, entry->bytes);
        return;
    }
    put_in(root, entry);
    ga_cuda_late_join(root, &root->hosts, entry, epoch);
}

// As with device memory: out of the table before the driver, which may give the address out again.
ga_result ga_cuda_host_end(ga_result (*real)(void *), enum ga_cuda_host_kind kind, void *at) {
    struct ga_root *root = ga_root_get();
    struct ga_entry entry;
    uint64_t epoch = root ? ga_cuda_late_epoch(root) : 0;
    bool ours = root && at && take_out(root, at, kind, &entry);
    ga_result result = real(at);
    if (ours)
        ga_cuda_host_end_free(root, result, &entry, epoch);
    return result;
}

static void add(void *arg, const struct ga_entry *entry) {
    *(uint64_t *)arg += entry->bytes;
}

void ga_cuda_host_sweep(struct ga_root *root, uint64_t ticket) {
    uint64_t bytes = 0;
    ga_self_enter();
    ga_table_drain(&root->hosts, ticket, add, &bytes);
    ga_self_leave();
    if (bytes)
        ga_host_give(root, bytes);
}
