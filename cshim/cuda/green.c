// SPDX-License-Identifier: Apache-2.0
// The making, conversion and destruction of green contexts (green.h).
#include "cuda/green.h"

#include "cuda/context.h"
#include "cuda/device.h"
#include "cuda/primary.h"
#include "cuda/state.h"
#include "cuda/teardown.h"

// Returns the handle of the primary context that a green context keeps alive; NULL: the driver does
// not tell. It retains and releases the primary context, which exists, so that nothing is made.
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

// The contexts that are asked for when a green context is made: the green one, and the primary one
// if it does not exist.
struct asks {
    struct ga_allocation own, primary;
};

// Writes down a green context that the driver has made, and the primary context.
static void record(struct asks *a, ga_green green, ga_cu_device device) {
    ga_context home = primary_handle(device);
    uint64_t serial = 0;
    a->primary.entry.key = (uint64_t)(uintptr_t)home;
    a->primary.entry.kind = GA_CUDA_CONTEXT_PRIMARY;
    if (home)
        ga_cuda_context_made(&a->primary);
    else
        ga_cuda_context_unmade(&a->primary);
    if (home)
        serial =
            ga_cuda_context_notice(a->own.root, home, a->own.entry.device, GA_CUDA_CONTEXT_SEEN)
                .context;
    a->own.entry.key = (uint64_t)(uintptr_t)green;
    a->own.entry.space = GA_SPACE_CUDA_GREEN;
    a->own.entry.context = serial;
    a->own.entry.kind = GA_CUDA_CONTEXT_GREEN;
    ga_cuda_context_made(&a->own);
}

// Asks for both contexts; first: the primary one does not exist. False: refused.
static bool ask_for(struct asks *a, ga_cu_device device, bool first) {
    a->primary = (struct ga_allocation){.root = NULL};
    if (!ga_cuda_context_ask(&a->own, device))
        return false;
    if (!first || ga_cuda_context_ask(&a->primary, device))
        return true;
    ga_cuda_context_unmade(&a->own);
    return false;
}

static ga_result settle(struct asks *a, ga_result result, const ga_green *green,
                        ga_cu_device device) {
    if (result == GA_CUDA_SUCCESS && a->own.root) {
        record(a, *green, device);
    } else {
        ga_cuda_context_unmade(&a->primary);
        ga_cuda_context_unmade(&a->own);
    }
    return result;
}

// The driver makes the primary context as well if it does not exist.
ga_result ga_cuda_green_create(GA_FN_cuGreenCtxCreate *real, ga_green *green, void *resources,
                               ga_cu_device device, unsigned int flags) {
    struct ga_root *root = ga_root_get();
    if (!root && ga_root_denies())
        return GA_CUDA_OUT_OF_MEMORY;
    if (!root || ga_cuda_device_number(root, device) < 0)
        return real(green, resources, device, flags);
    struct asks asks;
    enum ga_cuda_primary_way way = ga_cuda_primary_begin(root, device);
    bool refused = way == GA_PRIMARY_REFUSED || !ask_for(&asks, device, way != GA_PRIMARY_LIVES);
    ga_result result = GA_CUDA_OUT_OF_MEMORY;
    if (!refused)
        result = settle(&asks, real(green, resources, device, flags), green, device);
    if (way == GA_PRIMARY_ASK || way == GA_PRIMARY_ASK_BESIDE)
        ga_cuda_primary_answered(root, device, way, refused);
    return result;
}

// Takes the contexts that cuCtxFromGreenCtx made from a green context out of the table.
static void forget_conversions(struct ga_root *root, ga_green green) {
    uint64_t found;
    struct ga_entry e;
    do {
        found = 0;
        struct ga_walk walk = ga_self_walk(&ga_cuda(root)->contexts);
        while (ga_self_next(&walk, &e))
            if (e.kind == GA_CUDA_CONTEXT_OF_GREEN && e.bytes == (uint64_t)(uintptr_t)green)
                found = e.key;
        if (found)
            ga_cuda_context_forget(root, found);
    } while (found);
}

// Memory and streams of a green context belong to the primary context, and stay. The primary
// context ends here if this green context was the last that kept it alive.
ga_result ga_cuda_green_destroy(GA_FN_cuGreenCtxDestroy *real, ga_green green) {
    struct ga_root *root = ga_root_get();
    struct ga_entry entry;
    if (!root || !ga_cuda_context_find_green(root, green, &entry))
        return real(green);
    ga_cu_device device = ga_cuda_device_ordinal(root, entry.device);
    bool quiet = ga_cuda_teardown_begin(root);
    ga_result result = real(green);
    if (result == GA_CUDA_SUCCESS) {
        ga_cuda_primary_others_left(root, device);
        forget_conversions(root, green);
        ga_cuda_context_forget_green(root, green);
        if (!ga_cuda_primary_active(device))
            ga_cuda_primary_ended(root, device);
    }
    ga_cuda_teardown_finish(root, quiet);
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
        old.kind != GA_CUDA_CONTEXT_OF_GREEN)
        return result; // it is the primary one itself
    entry.space = GA_SPACE_PLAIN;
    entry.bytes = (uint64_t)(uintptr_t)green;
    entry.kind = GA_CUDA_CONTEXT_OF_GREEN;
    ga_self_lock(&ga_cuda(root)->contexts_lock);
    ga_table_put(&ga_cuda(root)->contexts, &entry, &old);
    ga_self_unlock(&ga_cuda(root)->contexts_lock);
    return result;
}
