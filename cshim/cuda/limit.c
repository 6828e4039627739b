// SPDX-License-Identifier: Apache-2.0
// Charges what a context's limits take (limit.h): one entry for each limit of each context.
#include "cuda/limit.h"

#include "cuda/state.h"

// Finds the calling thread's device, and the context in which its memory is charged there. False:
// the device is not arbitrated.
static bool charged_device(struct ga_root **root, int *device, uint64_t *context) {
    *root = ga_root_get();
    *device = *root ? ga_cuda_device_current(*root, context) : -1;
    return *device >= 0;
}

// The charge for one limit of the current context: the limit's value, less the value that the
// context was made with.
struct limit {
    struct ga_entry entry; // what is charged now; bytes 0: nothing
    uint64_t old_value;    // value before the call, in bytes
    uint64_t base;         // part of the value that is not charged, in bytes
};

// Removes the charge from the table; its bytes are in flight until end_limit. False: the driver
// does not report the limit's value.
static bool begin_limit(struct ga_root *root, int device, uint64_t context, int limit,
                        struct limit *l) {
    ga_context now = NULL;
    size_t value = 0;
    if (!GA_ASK(cuCtxGetLimit, &value, limit) || GA_REAL(cuCtxGetCurrent)(&now) != GA_CUDA_SUCCESS)
        return false;
    struct ga_key key = {(uint64_t)(uintptr_t)now,
                         limit == GA_CUDA_LIMIT_HEAP ? GA_SPACE_CUDA_HEAP : GA_SPACE_CUDA_BUFFER};
    l->old_value = value;
    if (!ga_remove_key(root, key, &l->entry))
        l->entry = (struct ga_entry){.key = key.number,
                                     .space = key.space,
                                     .context = context,
                                     .tag = atomic_load(&root->tag),
                                     .device = (uint8_t)device,
                                     .kind = GA_MEMORY_PLAIN};
    l->base = l->old_value > l->entry.bytes ? l->old_value - l->entry.bytes : 0;
    return true;
}

// Changes the charge to match a new value. False: refused.
static bool charge_limit(struct ga_root *root, struct limit *l, uint64_t value) {
    return ga_admit_change(root, &l->entry, value > l->base ? value - l->base : 0);
}

// Puts the charge back into the table.
static void end_limit(struct ga_root *root, struct limit *l, uint64_t epoch) {
    if (l->entry.bytes && !ga_cuda_allocation_insert(root, &l->entry, epoch))
        ga_release_entry(root,
                         &l->entry); // the daemon still sees the bytes in the device's readings
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
    // A larger value is charged before the driver allocates; a smaller value after the driver has
    // freed.
    bool more = value > l.old_value;
    ga_result result =
        more && !charge_limit(root, &l, value) ? GA_CUDA_OUT_OF_MEMORY : real(limit, value);
    if (result == GA_CUDA_SUCCESS) {
        size_t now = value; // the driver may round the value down
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
