// SPDX-License-Identifier: Apache-2.0
#include "cuda_host.h"

#include "cuda_device.h"
#include "host.h"

// How a block came to be page-locked (ga_entry.kind), so that the wrong call gives nothing back.
enum { ALLOCATED = 1, REGISTERED = 2 };

// One block on its way: open, then the driver, then settle.
struct claim {
    struct ga_root *root; // NULL: the driver alone decides
    uint64_t bytes;
    uint64_t context;
};

// False: refused.
static bool open_claim(struct claim *c, uint64_t bytes) {
    struct ga_root *root = ga_root_get();
    c->root = NULL;
    c->bytes = bytes;
    // Without a context the driver refuses; so does it what no entry can hold.
    if (!root || bytes == 0 || bytes > GA_CREDIT_LIMIT ||
        ga_cuda_device_current(root, &c->context) < 0)
        return true;
    if (!ga_host_take(root, bytes))
        return false;
    c->root = root;
    return true;
}

static bool take_out(struct ga_root *root, void *at, uint8_t kind, struct ga_entry *entry) {
    struct ga_entry old;
    ga_self_enter();
    bool found = ga_table_take(&root->hosts, (uint64_t)(uintptr_t)at, entry);
    if (found && entry->kind != kind) {
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

static ga_result settle(const struct claim *c, ga_result result, void *at, uint8_t kind) {
    if (!c->root)
        return result;
    if (result != GA_CUDA_SUCCESS) {
        ga_host_give(c->root, c->bytes);
        return result;
    }
    struct ga_entry entry = {.key = (uint64_t)(uintptr_t)at,
                             .bytes = c->bytes,
                             .context = c->context,
                             .tag = 1,
                             .kind = kind};
    put_in(c->root, &entry);
    return result;
}

ga_result ga_cuda_host_alloc_v1(GA_FN_cuMemAllocHost *real, void **at, unsigned int bytes) {
    struct claim c;
    if (!open_claim(&c, bytes))
        return GA_CUDA_OUT_OF_MEMORY;
    ga_result result = real(at, bytes);
    return settle(&c, result, result == GA_CUDA_SUCCESS ? *at : NULL, ALLOCATED);
}

ga_result ga_cuda_host_alloc(GA_FN_cuMemAllocHost_v2 *real, void **at, size_t bytes) {
    struct claim c;
    if (!open_claim(&c, bytes))
        return GA_CUDA_OUT_OF_MEMORY;
    ga_result result = real(at, bytes);
    return settle(&c, result, result == GA_CUDA_SUCCESS ? *at : NULL, ALLOCATED);
}

ga_result ga_cuda_host_alloc_flags(GA_FN_cuMemHostAlloc *real, void **at, size_t bytes,
                                   unsigned int flags) {
    struct claim c;
    if (!open_claim(&c, bytes))
        return GA_CUDA_OUT_OF_MEMORY;
    ga_result result = real(at, bytes, flags);
    return settle(&c, result, result == GA_CUDA_SUCCESS ? *at : NULL, ALLOCATED);
}

ga_result ga_cuda_host_register(GA_FN_cuMemHostRegister_v2 *real, void *at, size_t bytes,
                                unsigned int flags) {
    struct claim c;
    if (!open_claim(&c, bytes))
        return GA_CUDA_OUT_OF_MEMORY;
    return settle(&c, real(at, bytes, flags), at, REGISTERED);
}

// As with device memory: out of the table before the driver, which may give the address out again.
static ga_result end(ga_result (*real)(void *), void *at, uint8_t kind) {
    struct ga_root *root = ga_root_get();
    struct ga_entry entry;
    bool ours = root && at && take_out(root, at, kind, &entry);
    ga_result result = real(at);
    if (ours && result == GA_CUDA_SUCCESS)
        ga_host_give(root, entry.bytes);
    else if (ours)
        put_in(root, &entry);
    return result;
}

ga_result ga_cuda_host_free(GA_FN_cuMemFreeHost *real, void *at) {
    return end(real, at, ALLOCATED);
}

ga_result ga_cuda_host_unregister(GA_FN_cuMemHostUnregister *real, void *at) {
    return end(real, at, REGISTERED);
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
