// SPDX-License-Identifier: Apache-2.0
// Takes and ends the slots of threads (thread_slot.h), also when a thread ends.
#include "cuda/thread_slot.h"

#include <dlfcn.h>

#include "core/thread_slot.h"
#include "cuda/context.h"
#include "cuda/device.h"
#include "hook/loader.h"

// Ends the slots of a thread that ends. A forked child has a copy of the thread's memory, but no
// slots: there the generation differs.
static void thread_ends(void *unused) {
    (void)unused;
    struct ga_root *root = atomic_load(&ga_root_pointer);
    if (root && ga_self.generation == atomic_load(&root->generation) && ga_self.inside == 0)
        ga_thread_slot_drop(root);
}

// Registers thread_ends to run when the calling thread ends. It uses the function with which C++
// destroys thread-local objects, looked up at run time; so nothing runs in threads that never had a
// slot. If the C library lacks the function, or the thread is killed, another thread ends the slots
// later (core/session.c).
static void watch_end(void) {
    const struct ga_loader *loader = ga_loader_get();
    int (*at_exit)(void (*)(void *), void *, void *) = NULL;
    if (ga_self.watched)
        return;
    ga_self.watched = 1;
    if (loader->dlsym)
        *(void **)&at_exit = loader->dlsym(RTLD_DEFAULT, "__cxa_thread_atexit_impl");
    if (at_exit)
        at_exit(thread_ends, NULL, (void *)(uintptr_t)thread_ends);
}

// Takes a slot for a context that the thread is about to use, if it needs one. False: refused.
static bool take_slot_for(struct ga_root *root, ga_context context) {
    struct ga_entry entry;
    bool known = ga_cuda_context_find(root, (uint64_t)(uintptr_t)context, &entry);
    // The thread that inserted the context counts as its maker, and has its slot already.
    if (!known || (uint32_t)entry.bytes == ga_self.number ||
        !ga_thread_slot_matters(root, entry.device))
        return true;
    watch_end();
    return ga_thread_slot_use(root, entry.device);
}

// Reports whether another thread has ended the context before this thread inserted it. If so,
// removes the context again, because no other thread would.
static bool has_ended(struct ga_root *root, uint64_t serial, uint64_t epoch) {
    ga_cu_device ordinal;
    if (!ga_cuda_context_any_ended(root, epoch) || GA_ASK(cuCtxGetDevice, &ordinal))
        return false;
    ga_cuda_context_end(root, serial);
    return true;
}

// If the slot is refused, the thread still uses the context, because it is current already. The
// thread's next request for a slot is refused as well.
bool ga_cuda_thread_slot_first_use(struct ga_root *root, ga_context context, uint32_t device,
                                   uint64_t epoch) {
    take_slot_for(root, context);
    struct ga_entry met = ga_cuda_context_notice(root, context, device, GA_CUDA_CONTEXT_FOUND);
    if (has_ended(root, met.context, epoch))
        return false;
    ga_self.serial = met.context;
    ga_self.stands_for = met.kind == GA_CUDA_CONTEXT_FROM_GREEN;
    return true;
}

void ga_cuda_thread_slot_release_unused(struct ga_root *root) {
    ga_context now = NULL;
    if (ga_self.used_slots != 0 && GA_REAL(cuCtxGetCurrent) &&
        (GA_REAL(cuCtxGetCurrent)(&now) != GA_CUDA_SUCCESS || now == NULL))
        ga_thread_slot_drop(root);
}

ga_result ga_cuda_thread_slot_set(GA_FN_cuCtxSetCurrent *real, ga_context context) {
    struct ga_root *root = ga_root_get();
    uint64_t serial;
    if (root && context && !take_slot_for(root, context))
        return GA_CUDA_OUT_OF_MEMORY;
    ga_result result = real(context);
    if (root && result == GA_CUDA_SUCCESS && context)
        ga_cuda_device_current(root, &serial);
    if (root)
        ga_cuda_thread_slot_release_unused(root);
    return result;
}

ga_result ga_cuda_thread_slot_pop(GA_FN_cuCtxPopCurrent_v2 *real, ga_context *context) {
    ga_result result = real(context);
    struct ga_root *root = result == GA_CUDA_SUCCESS ? ga_root_get() : NULL;
    if (root)
        ga_cuda_thread_slot_release_unused(root);
    return result;
}
