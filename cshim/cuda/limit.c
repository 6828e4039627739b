// SPDX-License-Identifier: Apache-2.0
#include "cuda/limit.h"

#include "cuda/state.h"

// Finds the calling thread's device, and the context in which its memory is charged there. False:
// the device is not arbitrated.
static bool charged_device(struct ga_root **root, int *device, uint64_t *context) {
    *root = ga_root_get();
    *device = *root ? ga_cuda_device_current(*root, context) : -1;
    return *device >= 0;
}

// The charge for one limit of the current context: its value, less what the context had when it was
// made.
struct limit {
    struct ga_entry entry; // what is charged now; bytes 0: nothing
    uint64_t was;          // value before the call
    uint64_t base;         // part of it that is not charged
};

// Takes the charge out of the table; its bytes are in flight until end_limit. False: the driver
// does not tell the limit's value.
static bool begin_limit(struct ga_root *root, int device, uint64_t context, int limit,
                        struct limit *l) {
    ga_context now = NULL;
    size_t value = 0;
    if (!GA_ASK(cuCtxGetLimit, &value, limit) || GA_REAL(cuCtxGetCurrent)(&now) != GA_CUDA_SUCCESS)
        return false;
    struct ga_key key = {(uint64_t)(uintptr_t)now,
                         limit == GA_CUDA_LIMIT_HEAP ? GA_SPACE_CUDA_HEAP : GA_SPACE_CUDA_BUFFER};
    l->was = value;
    if (!ga_remove_key(root, key, &l->entry))
        l->entry = (struct ga_entry){.key = key.number,
                                     .space = key.space,
                                     .context = context,
                                     .tag = atomic_load(&root->tag),
                                     .device = (uint8_t)device,
                                     .kind = GA_MEMORY_PLAIN};
    l->base = l->was > l->entry.bytes ? l->was - l->entry.bytes : 0;
    return true;
}

// Changes the charge to that for a new value. False: refused.
static bool charge_limit(struct ga_root *root, struct limit *l, uint64_t value) {
    return ga_admit_change(root, &l->entry, value > l->base ? value - l->base : 0);
}

// Puts the charge back into the table.
static void end_limit(struct ga_root *root, struct limit *l, uint64_t epoch) {
    if (l->entry.bytes && !ga_cuda_allocation_keep(root, &l->entry, epoch))
        ga_release_entry(root, &l->entry); // the device's readings show it all the same
}

ga_result ga_cuda_limit_set(GA_FN_cuCtxSetLimit *real, int limit, size_t value) {
    struct ga_root *root;
    struct limit l;
    uint64_t context;
    int device;
    if ((limit != GA_CUDA_LIMIT_HEAP && limit != GA_CUDA_LIMIT_BUFFER) ||
        !charged_device(&root, &device, &context) || !begin_limit(root, device, context, limit, &l))
        return real(limit, value);
    uint64_t epoch = ga_cuda_context_epoch(root);
    uint64_t before = l.entry.bytes;
    // More is charged before the driver takes it, less after the driver has let go of it.
    bool more = value > l.was;
    ga_result result =
        more && !charge_limit(root, &l, value) ? GA_CUDA_OUT_OF_MEMORY : real(limit, value);
    if (result == GA_CUDA_SUCCESS) {
        size_t now = value; // as the driver has rounded it
        if (GA_REAL(cuCtxGetLimit)(&now, limit) == GA_CUDA_SUCCESS && now < value)
            value = now;
        charge_limit(root, &l, value);
        ga_publish_soft(root);
    } else if (more && l.entry.bytes > before) {
        charge_limit(root, &l, l.base + before);
    }
    end_limit(root, &l, epoch);
    return result;
}
