// SPDX-License-Identifier: Apache-2.0
// Makes, converts and destroys green contexts (green.h).
#include "cuda/green.h"

#include "cuda/context.h"
#include "cuda/device.h"
#include "cuda/primary.h"
#include "cuda/state.h"
#include "cuda/teardown.h"

// Returns the handle of the primary context that a green context keeps alive; NULL: the driver does
// not report it. It retains and releases the primary context. The primary context exists already,
// so nothing is made.
static ga_context primary_handle(ga_cu_device device) {
    ga_context context = NULL;
    if (!GA_ASK(cuDevicePrimaryCtxRetain, &context, device))
        return NULL;
    if (GA_REAL(cuDevicePrimaryCtxRelease_v2))
        GA_REAL(cuDevicePrimaryCtxRelease_v2)(device);
    else if (GA_REAL(cuDevicePrimaryCtxRelease))
        GA_REAL(cuDevicePrimaryCtxRelease)(device);
    return context;
}

// The contexts that the library asks the daemon for when a green context is made: the green
// context, and the primary context if it does not exist.
struct requests {
    struct ga_allocation own, primary;
};

// Inserts a green context that the driver has made, and the primary context.
static void record(struct requests *a, ga_green green, ga_cu_device device) {
    ga_context primary = primary_handle(device);
    uint64_t serial = 0;
    a->primary.entry.key = (uint64_t)(uintptr_t)primary;
    a->primary.entry.kind = GA_CUDA_CONTEXT_PRIMARY;
    if (primary)
        ga_cuda_context_made(&a->primary);
    else
        ga_cuda_context_not_made(&a->primary);
    if (primary)
        serial =
            ga_cuda_context_notice(a->own.root, primary, a->own.entry.device, GA_CUDA_CONTEXT_FOUND)
                .context;
    a->own.entry.key = (uint64_t)(uintptr_t)green;
    a->own.entry.space = GA_SPACE_CUDA_GREEN;
    a->own.entry.context = serial;
    a->own.entry.kind = GA_CUDA_CONTEXT_GREEN;
    ga_cuda_context_made(&a->own);
}

// Asks for both contexts. first: the primary context does not exist. full: see ga_admit_again.
// False: refused.
static bool ask_for(struct requests *a, ga_cu_device device, bool first, uint32_t full) {
    a->own.full = full;
    a->primary = (struct ga_allocation){.full = full};
    if (!ga_cuda_context_ask(&a->own, device))
        return false;
    if (!first || ga_cuda_context_ask(&a->primary, device))
        return true;
    ga_cuda_context_not_made(&a->own);
    return false;
}

static ga_result settle(struct requests *a, ga_result result, const ga_green *green,
                        ga_cu_device device) {
    if (result == GA_CUDA_SUCCESS && a->own.root) {
        record(a, *green, device);
    } else {
        ga_cuda_context_not_made(&a->primary);
        ga_cuda_context_not_made(&a->own);
    }
    return result;
}

// If the primary context does not exist, the driver makes it together with the green context.
ga_result ga_cuda_green_create(GA_FN_cuGreenCtxCreate *real, ga_green *green, void *resources,
                               ga_cu_device device, unsigned int flags) {
    struct ga_root *root = ga_root_get();
    if (!root && ga_root_denies())
        return GA_CUDA_OUT_OF_MEMORY;
    if (!root || ga_cuda_device_number(root, device) < 0)
        return real(green, resources, device, flags);
    struct requests requests;
    enum ga_cuda_primary_action action = ga_cuda_primary_begin(root, device);
    bool refused = action == GA_PRIMARY_REFUSED;
    uint32_t full = 0;
    ga_result result = GA_CUDA_OUT_OF_MEMORY;
    do {
        refused = refused || !ask_for(&requests, device, action != GA_PRIMARY_EXISTS, full);
        if (refused)
            break;
        result = settle(&requests, real(green, resources, device, flags), green, device);
    } while (ga_admit_again(root, &full, result == GA_CUDA_OUT_OF_MEMORY));
    if (action == GA_PRIMARY_ASK || action == GA_PRIMARY_ASK_UNLOCKED)
        ga_cuda_primary_answered(root, device, action, refused);
    return result;
}

// Removes the contexts that cuCtxFromGreenCtx made from a green context.
static void forget_conversions(struct ga_root *root, ga_green green) {
    uint64_t found;
    struct ga_entry e;
    do {
        found = 0;
        struct ga_walk walk = ga_self_walk(&ga_cuda(root)->contexts);
        while (ga_self_next(&walk, &e))
            if (e.kind == GA_CUDA_CONTEXT_FROM_GREEN && e.bytes == (uint64_t)(uintptr_t)green)
                found = e.key;
        if (found)
            ga_cuda_context_forget(root, found);
    } while (found);
}

// The memory and streams of a green context belong to the primary context, and stay. The primary
// context ends here if this green context was the last object that kept it alive.
ga_result ga_cuda_green_destroy(GA_FN_cuGreenCtxDestroy *real, ga_green green) {
    struct ga_root *root = ga_root_get();
    struct ga_entry entry;
    if (!root || !ga_cuda_context_find_green(root, green, &entry))
        return real(green);
    ga_cu_device device = ga_cuda_device_ordinal(root, entry.device);
    bool locked = ga_cuda_teardown_begin(root);
    ga_result result = real(green);
    if (result == GA_CUDA_SUCCESS) {
        ga_cuda_primary_others_released(root, device);
        forget_conversions(root, green);
        ga_cuda_context_forget_green(root, green);
        if (!ga_cuda_primary_active(device))
            ga_cuda_primary_ended(root, device);
    }
    ga_cuda_teardown_finish(root, locked);
    return result;
}

// Memory that is allocated while the converted context is current belongs to the primary context.
ga_result ga_cuda_green_convert(GA_FN_cuCtxFromGreenCtx *real, ga_context *context,
                                ga_green green) {
    ga_result result = real(context, green);
    struct ga_root *root = result == GA_CUDA_SUCCESS ? ga_root_get() : NULL;
    struct ga_entry entry;
    struct ga_entry old;
    if (!root || !ga_cuda_context_find_green(root, green, &entry) || entry.context == 0)
        return result;
    entry.key = (uint64_t)(uintptr_t)*context;
    if (ga_cuda_context_find(root, entry.key, &old) && old.context == entry.context &&
        old.kind != GA_CUDA_CONTEXT_FROM_GREEN)
        return result; // the handle is that of the primary context
    entry.space = GA_SPACE_PLAIN;
    entry.bytes = (uint64_t)(uintptr_t)green;
    entry.kind = GA_CUDA_CONTEXT_FROM_GREEN;
    ga_self_lock(&ga_cuda(root)->contexts_lock);
    ga_table_put(&ga_cuda(root)->contexts, &entry, &old);
    ga_self_unlock(&ga_cuda(root)->contexts_lock);
    return result;
}
