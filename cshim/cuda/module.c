// SPDX-License-Identifier: Apache-2.0
#include "cuda/module.h"

#include "cuda/state.h"

// Keys in root.blocks that are no addresses: a handle, and in the uppermost bits what of it.
#define KIND_SHIFT 60
enum { BUFFER = 1, HEAP = 2 }; // and GA_CUDA_MODULE, GA_CUDA_LIBRARY

static uint64_t key_of(const void *handle, unsigned int kind) {
    return (uint64_t)(uintptr_t)handle | (uint64_t)kind << KIND_SHIFT;
}

// The thread's device, and the context that is charged there. False: not arbitrated.
static bool charged_device(struct ga_root **root, int *device, uint64_t *context) {
    *root = ga_root_get();
    *device = *root ? ga_cuda_device_current(*root, context) : -1;
    return *device >= 0;
}

// Heaps and buffers of a context

// What of a limit's value is charged: what the context did not have of itself.
struct limit {
    struct ga_entry entry; // what is charged now; bytes 0: nothing
    uint64_t was;
    uint64_t base;
};

// Takes the charge out; its bytes are on their way meanwhile.
static bool begin_limit(struct ga_root *root, int device, uint64_t context, int limit,
                        struct limit *l) {
    ga_context now = NULL;
    size_t value = 0;
    if (!GA_ASK(cuCtxGetLimit, &value, limit) || GA_REAL(cuCtxGetCurrent)(&now) != GA_CUDA_SUCCESS)
        return false;
    uint64_t key = key_of(now, limit == GA_CUDA_LIMIT_HEAP ? HEAP : BUFFER);
    l->was = value;
    if (!ga_withdraw(root, key, &l->entry))
        l->entry = (struct ga_entry){.key = key,
                                     .context = context,
                                     .tag = atomic_load(&root->tag),
                                     .device = (uint8_t)device,
                                     .kind = GA_MEMORY_PLAIN};
    l->base = l->was > l->entry.bytes ? l->was - l->entry.bytes : 0;
    return true;
}

// Makes the charge what a value is worth. False: refused.
static bool charge_limit(struct ga_root *root, struct limit *l, uint64_t value) {
    return ga_admit_change(root, &l->entry, value > l->base ? value - l->base : 0);
}

static void end_limit(struct ga_root *root, struct limit *l, uint64_t epoch) {
    if (l->entry.bytes && !ga_cuda_claim_keep(root, &l->entry, epoch))
        ga_release_entry(root, &l->entry); // it is held all the same, and found by the readings
}

ga_result ga_cuda_limit_set(GA_FN_cuCtxSetLimit *real, int limit, size_t value) {
    struct ga_root *root;
    struct limit l;
    uint64_t context;
    int device;
    if ((limit != GA_CUDA_LIMIT_HEAP && limit != GA_CUDA_LIMIT_BUFFER) ||
        !charged_device(&root, &device, &context) || !begin_limit(root, device, context, limit, &l))
        return real(limit, value);
    uint64_t epoch = ga_cuda_late_epoch(root);
    uint64_t before = l.entry.bytes;
    // What gets smaller is given back when the driver has let go of it.
    bool more = value > l.was;
    ga_result result =
        more && !charge_limit(root, &l, value) ? GA_CUDA_OUT_OF_MEMORY : real(limit, value);
    if (result == GA_CUDA_SUCCESS) {
        size_t now = value; // as the driver has rounded it
        if (GA_REAL(cuCtxGetLimit)(&now, limit) == GA_CUDA_SUCCESS && now < value)
            value = now;
        charge_limit(root, &l, value);
        ga_tell_soft(root);
    } else if (more && l.entry.bytes > before) {
        charge_limit(root, &l, l.base + before);
    }
    if (l.entry.bytes > before)
        atomic_fetch_add(&ga_cuda(root)->ahead[device], l.entry.bytes - before);
    end_limit(root, &l, epoch);
    return result;
}

// Loads

typedef ga_result unload(void *handle);

// The driver's function that undoes a load.
static unload *unload_of(enum ga_cuda_module_kind kind) {
    return kind == GA_CUDA_MODULE ? (unload *)(void *)GA_REAL(cuModuleUnload)
                                  : (unload *)(void *)GA_REAL(cuLibraryUnload);
}

static bool undo(uint64_t key) {
    void *handle = (void *)(uintptr_t)(key & ((1ull << KIND_SHIFT) - 1));
    return unload_of(key >> KIND_SHIFT)(handle) == GA_CUDA_SUCCESS;
}

void ga_cuda_load_begin(struct ga_cuda_load *l, enum ga_cuda_module_kind kind, void *out) {
    int device;
    *l = (struct ga_cuda_load){.kind = kind, .out = out, .at = out};
    if (!out || !unload_of(kind) || !charged_device(&l->c.root, &device, &l->c.entry.context)) {
        l->c.root = NULL;
        return;
    }
    l->at = &l->handle;
    l->c.entry.device = (uint8_t)device;
    l->c.entry.kind = GA_MEMORY_PLAIN;
    l->c.epoch = ga_cuda_late_epoch(l->c.root);
    ga_cuda_measure_begin(l->c.root, (uint32_t)device, &l->measure);
}

// What a load took becomes its entry. WAITS: it was not charged.
static enum ga_at_once charge(struct ga_claim *c) {
    struct ga_entry *e = &c->entry;
    if (e->bytes == 0)
        return GA_AT_ONCE;
    enum ga_at_once at_once = ga_admit_at_once(c->root, e->device, e->bytes, e->kind, &e->tag);
    if (at_once == GA_AT_ONCE && !ga_cuda_claim_keep(c->root, e, c->epoch)) {
        ga_claim_drop(c);
        at_once = GA_AT_ONCE_REFUSED;
    }
    return at_once;
}

bool ga_cuda_load_settle(struct ga_cuda_load *l, ga_result *result) {
    enum ga_at_once charged = GA_AT_ONCE;
    struct ga_entry *e = &l->c.entry;
    if (!l->c.root)
        return false;
    e->bytes = ga_cuda_measure_taken(l->c.root, &l->measure);
    e->key = key_of(l->handle, l->kind);
    if (*result == GA_CUDA_SUCCESS)
        charged = charge(&l->c);
    bool undone = charged != GA_AT_ONCE && undo(e->key);
    ga_cuda_measure_done(l->c.root, &l->measure);
    if (undone && charged == GA_AT_ONCE_WAITS &&
        ga_admit(l->c.root, e->device, e->bytes, e->kind, &e->tag))
        return true;
    if (undone)
        *result = GA_CUDA_OUT_OF_MEMORY;
    if (*result == GA_CUDA_SUCCESS)
        *l->out = l->handle;
    return false;
}

ga_result ga_cuda_load_settle_again(struct ga_cuda_load *l, ga_result result) {
    result = ga_cuda_claim_settle(&l->c, result, key_of(l->handle, l->kind), undo);
    if (result == GA_CUDA_SUCCESS)
        *l->out = l->handle;
    return result;
}

bool ga_cuda_module_give(struct ga_claim *c, void *handle, enum ga_cuda_module_kind kind) {
    return ga_cuda_claim_give(c, key_of(handle, kind));
}

void ga_cuda_module_given(const struct ga_claim *c, ga_result result) {
    ga_cuda_claim_given(c, result);
    // What it used beyond its bytes may differ.
    if (result == GA_CUDA_SUCCESS)
        atomic_store(&ga_cuda(c->root)->measured[c->entry.device].at_ms, 0);
}
