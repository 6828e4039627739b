// SPDX-License-Identifier: Apache-2.0
#include "cuda/module.h"

#include "cuda/claim.h"
#include "cuda/measure.h"
#include "cuda/state.h"

// Keys in root.blocks that are no addresses: a handle, and in the uppermost bits what of it.
enum what { BUFFER = 1, HEAP = 2, MODULE = 3, LIBRARY = 4 };

static uint64_t key_of(const void *handle, enum what what) {
    return (uint64_t)(uintptr_t)handle | (uint64_t)what << 60;
}

// The thread's device, and the context that is charged there. False: not arbitrated.
static bool charged_device(struct ga_root **root, int *device, uint64_t *context) {
    *root = ga_root_get();
    *device = *root ? ga_cuda_device_current(*root, context) : -1;
    return *device >= 0;
}

static void drop(struct ga_root *root, const struct ga_entry *entry) {
    ga_release(root, entry->device, entry->bytes, entry->tag);
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
    if (!GA_REAL(cuCtxGetLimit) || GA_REAL(cuCtxGetLimit)(&value, limit) != GA_CUDA_SUCCESS ||
        GA_REAL(cuCtxGetCurrent)(&now) != GA_CUDA_SUCCESS)
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

// Makes the charge what a value is worth. False: refused, and it is what it was.
static bool charge_limit(struct ga_root *root, struct limit *l, uint64_t value) {
    struct ga_entry *e = &l->entry;
    uint64_t want = value > l->base ? value - l->base : 0;
    uint16_t tag;
    if (want > e->bytes) {
        if (!ga_admit(root, e->device, want - e->bytes, e->kind, &tag))
            return false;
        if (tag != e->tag && e->bytes) { // the session began anew: what was charged is nobody's
            drop(root, e);
            uint64_t rest = e->bytes;
            if (!ga_admit(root, e->device, rest, e->kind, &tag)) {
                ga_release(root, e->device, want - rest, tag);
                e->bytes = 0;
                return false;
            }
        }
        e->tag = tag;
    } else {
        ga_release(root, e->device, e->bytes - want, e->tag);
    }
    e->bytes = want;
    return true;
}

static void end_limit(struct ga_root *root, struct limit *l, uint64_t epoch) {
    if (l->entry.bytes && !ga_cuda_claim_keep(root, &l->entry, epoch))
        drop(root, &l->entry); // it is held all the same, and found by the readings
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

// One load: how it is done. Its result is the handle.
struct load {
    ga_result (*run)(const struct load *load, void **handle);
    enum what what;
    void *real;
    const void *from;
    int *jit, *options;
    void **jit_values, **values;
    unsigned int jits, count;
};

typedef ga_result undo(void *handle);

// The driver's function that undoes it.
static undo *undo_of(enum what what) {
    return what == MODULE ? (undo *)(void *)GA_REAL(cuModuleUnload)
                          : (undo *)(void *)GA_REAL(cuLibraryUnload);
}

// What a load took becomes its entry. WAITS: it was not charged.
static enum ga_at_once settle(struct ga_root *root, const struct load *load, void *handle,
                              struct ga_entry *entry, uint64_t epoch) {
    enum ga_at_once at_once = GA_AT_ONCE;
    if (entry->bytes == 0)
        return at_once;
    at_once = ga_admit_at_once(root, entry->device, entry->bytes, entry->kind, &entry->tag);
    entry->key = key_of(handle, load->what);
    if (at_once == GA_AT_ONCE && !ga_cuda_claim_keep(root, entry, epoch)) {
        drop(root, entry);
        at_once = GA_AT_ONCE_REFUSED;
    }
    return at_once;
}

// Waits for the bytes that a load takes, and does it once more.
static ga_result load_again(struct ga_root *root, const struct load *load, void **handle,
                            struct ga_entry *entry, uint64_t epoch) {
    if (!ga_admit(root, entry->device, entry->bytes, entry->kind, &entry->tag))
        return GA_CUDA_OUT_OF_MEMORY;
    ga_result result = load->run(load, handle);
    entry->key = key_of(*handle, load->what);
    if (result != GA_CUDA_SUCCESS) {
        drop(root, entry);
    } else if (!ga_cuda_claim_keep(root, entry, epoch)) {
        drop(root, entry);
        undo_of(load->what)(*handle);
        result = GA_CUDA_OUT_OF_MEMORY;
    }
    return result;
}

static ga_result run(const struct load *load, void **out) {
    struct ga_root *root;
    struct ga_cuda_measure m;
    uint64_t context;
    int device;
    void *handle = NULL;
    if (!out || !undo_of(load->what) || !charged_device(&root, &device, &context))
        return load->run(load, out);
    uint64_t epoch = ga_cuda_late_epoch(root);
    ga_cuda_measure_begin(root, (uint32_t)device, &m);
    ga_result result = load->run(load, &handle);
    struct ga_entry entry = {.bytes = ga_cuda_measure_taken(root, &m),
                             .context = context,
                             .device = (uint8_t)device,
                             .kind = GA_MEMORY_PLAIN};
    enum ga_at_once charged = GA_AT_ONCE;
    if (result == GA_CUDA_SUCCESS)
        charged = settle(root, load, handle, &entry, epoch);
    bool undone = charged != GA_AT_ONCE && undo_of(load->what)(handle) == GA_CUDA_SUCCESS;
    ga_cuda_measure_done(root, &m);
    if (undone && charged == GA_AT_ONCE_REFUSED)
        return GA_CUDA_OUT_OF_MEMORY;
    if (undone)
        result = load_again(root, load, &handle, &entry, epoch);
    if (result == GA_CUDA_SUCCESS)
        *out = handle;
    return result;
}

static ga_result run_data(const struct load *l, void **handle) {
    return ((GA_FN_cuModuleLoadData *)l->real)((ga_module *)handle, l->from);
}

static ga_result run_with(const struct load *l, void **handle) {
    return ((GA_FN_cuModuleLoadDataEx *)l->real)((ga_module *)handle, l->from, l->count, l->options,
                                                 l->values);
}

static ga_result run_library(const struct load *l, void **handle) {
    return ((GA_FN_cuLibraryLoadData *)l->real)((ga_library_handle *)handle, l->from, l->jit,
                                                l->jit_values, l->jits, l->options, l->values,
                                                l->count);
}

static ga_result load_module(ga_result (*way)(const struct load *, void **), void *real,
                             ga_module *module, const void *from, unsigned int count, int *options,
                             void **values) {
    struct load l = {way, MODULE, real, from, NULL, options, NULL, values, 0, count};
    return run(&l, (void **)module);
}

ga_result ga_cuda_module_load_data(GA_FN_cuModuleLoadData *real, ga_module *module,
                                   const void *from) {
    return load_module(run_data, (void *)real, module, from, 0, NULL, NULL);
}

ga_result ga_cuda_module_load_with(GA_FN_cuModuleLoadDataEx *real, ga_module *module,
                                   const void *image, unsigned int count, int *options,
                                   void **values) {
    return load_module(run_with, (void *)real, module, image, count, options, values);
}

ga_result ga_cuda_library_load(GA_FN_cuLibraryLoadData *real, ga_library_handle *library,
                               const void *from, int *jit, void **jit_values, unsigned int jits,
                               int *options, void **values, unsigned int count) {
    struct load l = {run_library, LIBRARY,    (void *)real, from, jit,
                     options,     jit_values, values,       jits, count};
    return run(&l, (void **)library);
}

// As with a free: the entry leaves the table before the driver is called, which may give the handle
// out again.
static ga_result unload(void *handle, enum what what, undo *real) {
    struct ga_entry entry;
    struct ga_root *root = ga_root_get();
    uint64_t epoch = root ? ga_cuda_late_epoch(root) : 0;
    bool ours = root && ga_withdraw(root, key_of(handle, what), &entry);
    ga_result result = real(handle);
    if (!ours || (result != GA_CUDA_SUCCESS && ga_cuda_claim_keep(root, &entry, epoch)))
        return result;
    drop(root, &entry);
    // What it used beyond its bytes may differ.
    atomic_store(&ga_cuda(root)->measured[entry.device].at_ms, 0);
    return result;
}

ga_result ga_cuda_module_unload(GA_FN_cuModuleUnload *real, ga_module module) {
    return unload(module, MODULE, (undo *)(void *)real);
}

ga_result ga_cuda_library_unload(GA_FN_cuLibraryUnload *real, ga_library_handle library) {
    return unload(library, LIBRARY, (undo *)(void *)real);
}
