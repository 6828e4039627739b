// SPDX-License-Identifier: Apache-2.0
// Keeps the lists of records, and looks up the next layer's functions (chain.h).
#include "vulkan/chain.h"

#define RECORD ((size_t)4096)
_Static_assert(sizeof(struct ga_vulkan_instance) <= RECORD, "a page");
_Static_assert(sizeof(struct ga_vulkan_device) <= RECORD, "a page");

enum { FREE, TAKEN };

static _Atomic(struct ga_vulkan_link *) instances, devices;

// Takes a free record of a list; NULL: all are in use.
static struct ga_vulkan_link *take_free(struct ga_vulkan_link *link) {
    for (; link; link = link->next) {
        uintptr_t key = FREE;
        if (atomic_load_explicit(&link->key, memory_order_relaxed) == FREE &&
            atomic_compare_exchange_strong(&link->key, &key, TAKEN))
            break;
    }
    return link;
}

// Returns a record that is free, or a new one in the list.
static void *add(_Atomic(struct ga_vulkan_link *) *list) {
    struct ga_vulkan_link *link = take_free(atomic_load(list));
    if (link) {
        ga_os_zero(link + 1, RECORD - sizeof *link);
        return link;
    }
    link = ga_os_map(RECORD);
    if (!link)
        return NULL;
    atomic_store(&link->key, TAKEN);
    link->next = atomic_load(list);
    while (!atomic_compare_exchange_weak(list, &link->next, link)) {
    }
    return link;
}

struct ga_vulkan_instance *ga_vulkan_chain_add_instance(void) {
    return add(&instances);
}

struct ga_vulkan_device *ga_vulkan_chain_add_device(void) {
    return add(&devices);
}

static uintptr_t key_of(const void *handle) {
    return *(const uintptr_t *)handle;
}

static void register_link(struct ga_vulkan_link *link, const void *handle) {
    atomic_store_explicit(&link->key, key_of(handle), memory_order_release);
}

#define ASK(symbol) record->next.symbol = (GA_FN_##symbol *)record->get(handle, #symbol);

void ga_vulkan_chain_register_instance(struct ga_vulkan_instance *record, ga_vk_instance handle) {
#define ASK_global(symbol)
#define ASK_instance(symbol) ASK(symbol)
#define ASK_device(symbol)
#define GA_LAYER(symbol, scope, ...) ASK_##scope(symbol)
#define GA_ASKS(symbol, ...) ASK(symbol)
#include "vulkan/layer.def"
#undef GA_ASKS
#undef ASK_instance
#undef ASK_device
    record->handle = handle;
    register_link(&record->link, handle);
}

void ga_vulkan_chain_register_device(struct ga_vulkan_device *record, ga_vk_device handle) {
#define ASK_instance(symbol)
#define ASK_device(symbol) ASK(symbol)
#define GA_ASKS(symbol, ...)
#include "vulkan/layer.def"
#undef GA_LAYER
#undef GA_ASKS
    record->handle = handle;
    register_link(&record->link, handle);
}

static void *find(struct ga_vulkan_link *link, const void *handle) {
    if (!handle)
        return NULL;
    while (link && atomic_load_explicit(&link->key, memory_order_acquire) != key_of(handle))
        link = link->next;
    return link;
}

struct ga_vulkan_instance *ga_vulkan_chain_instance(const void *handle) {
    return find(atomic_load_explicit(&instances, memory_order_acquire), handle);
}

struct ga_vulkan_device *ga_vulkan_chain_device(const void *handle) {
    return find(atomic_load_explicit(&devices, memory_order_acquire), handle);
}

void ga_vulkan_chain_unregister(struct ga_vulkan_link *link) {
    atomic_store(&link->key, TAKEN);
}

void ga_vulkan_chain_release(struct ga_vulkan_link *link) {
    atomic_store_explicit(&link->key, FREE, memory_order_release);
}

const void *ga_vulkan_chain_find(const struct ga_vk_any *next, int32_t type) {
    while (next && next->type != type)
        next = next->next;
    return next;
}

// The loader owns the structure, and layers write to it: each layer passes it on with the link of
// the layer after it.
struct ga_vk_loader_info *ga_vulkan_chain_loader(const struct ga_vk_any *next, int32_t type) {
    enum { LINK = 0 };
    const struct ga_vk_loader_info *info = ga_vulkan_chain_find(next, type);
    while (info && info->function != LINK)
        info = ga_vulkan_chain_find(info->next, type);
    return info && info->link.instance ? (struct ga_vk_loader_info *)(uintptr_t)info : NULL;
}
