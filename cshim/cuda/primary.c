// SPDX-License-Identifier: Apache-2.0
// Retains and releases primary contexts, and decides which thread asks the daemon for one
// (primary.h).
#include "cuda/primary.h"

#include "core/admit.h"
#include "core/log.h"
#include "core/thread_slot.h"
#include "cuda/context.h"
#include "cuda/device.h"
#include "cuda/state.h"
#include "cuda/teardown.h"

// If slots are counted by thread, each thread that retains a primary context takes a slot, and
// keeps it until it releases. That includes the thread that makes the context.

// Returns gpuarb's number of a device. The device has one, because the retain was admitted.
static uint32_t number_of(struct ga_root *root, ga_cu_device device) {
    return (uint32_t)ga_cuda_device_number(root, device);
}

// Locks a device's ga_primary.lock; the caller unlocks it.
static struct ga_primary *lock(struct ga_root *root, ga_cu_device device) {
    struct ga_primary *p = &ga_cuda(root)->primaries[device];
    ga_self_lock(&p->lock);
    return p;
}

// Counts a retain. others: the context existed before.
static void count_use(struct ga_root *root, ga_cu_device device, bool others) {
    struct ga_primary *p = lock(root, device);
    if (p->uses++ == 0)
        p->others = others;
    ga_self_unlock(&p->lock);
}

// Counts a release that did not end the context.
static void count_release(struct ga_root *root, ga_cu_device device) {
    struct ga_primary *p = lock(root, device);
    if (p->uses)
        p->uses--;
    ga_self_unlock(&p->lock);
    ga_thread_slot_release(root, number_of(root, device));
}

// Sets the counts to 0, because the context has ended.
static void clear_uses(struct ga_root *root, ga_cu_device device) {
    struct ga_primary *p = lock(root, device);
    p->uses = 0;
    p->others = false;
    ga_self_unlock(&p->lock);
    ga_thread_slot_release_all(root, number_of(root, device));
}

bool ga_cuda_primary_active(ga_cu_device device) {
    unsigned int flags;
    int active = 0;
    return GA_ASK(cuDevicePrimaryCtxGetState, device, &flags, &active) && active != 0;
}

// Returns the serial number of a device's primary context; 0: it is not in the table. An entry of
// kind PRIMARY is surely the primary context; an entry that was found in use most likely is.
static uint64_t serial_of(struct ga_root *root, ga_cu_device device) {
    uint32_t number = number_of(root, device);
    bool sure = false;
    uint64_t found = 0;
    struct ga_entry e;
    struct ga_walk walk = ga_self_walk(&ga_cuda(root)->contexts);
    while (ga_self_next(&walk, &e)) {
        if (e.device != number || e.kind > GA_CUDA_CONTEXT_PRIMARY || sure)
            continue;
        found = e.context;
        sure = e.kind == GA_CUDA_CONTEXT_PRIMARY;
    }
    return found;
}

// ga_primary.driver_call is locked during a driver call and its accounting. Without the lock, this
// could happen: one thread ends the context, another thread makes a new one, and then the first
// thread removes the new one from the table. The wait for the lock is bounded, because it is a wait
// for the driver.
#define CALL_WAIT_MS 5000

// Locks driver_call. False: the lock was not obtained, and the caller continues. Either the driver
// is busy, or the thread has the lock already. The thread can have it because the driver, when a
// context ends, calls destructors of the CUDA runtime and of the program, which may call these
// wrappers.
static bool begin_call(struct ga_root *root, ga_cu_device device) {
    struct ga_primary *p = &ga_cuda(root)->primaries[device];
    if (ga_mutex_lock(&p->driver_call, CALL_WAIT_MS))
        return true;
    if (!ga_mutex_is_mine(&p->driver_call))
        ga_log("the driver is busy with GPU %u's primary context for %u s: goes on without",
               (uint64_t)device, (uint64_t)CALL_WAIT_MS / 1000);
    return false;
}

static void end_call(struct ga_root *root, ga_cu_device device, bool mine) {
    struct ga_primary *p = &ga_cuda(root)->primaries[device];
    if (mine)
        ga_mutex_unlock(&p->driver_call);
}

// Asking

// Waits until no other thread asks for the context. False: this is a signal handler that has
// interrupted the asking thread, and continues unlocked.
static bool begin_asking(struct ga_root *root, struct ga_primary *p) {
    bool mine = ga_mutex_lock(&p->asking, 0);
    if (!mine && ga_mutex_is_mine(&p->asking))
        return false; // see above
    if (!mine) {
        ga_threads_set_dependent(root, true);
        ga_mutex_lock(&p->asking, -1);
        ga_threads_set_dependent(root, false);
    }
    return true;
}

enum ga_cuda_primary_action ga_cuda_primary_begin(struct ga_root *root, ga_cu_device device) {
    struct ga_primary *p = &ga_cuda(root)->primaries[device];
    if (ga_cuda_primary_active(device))
        return GA_PRIMARY_EXISTS;
    uint32_t refusals = atomic_load(&p->refusals);
    enum ga_cuda_primary_action action =
        begin_asking(root, p) ? GA_PRIMARY_ASK : GA_PRIMARY_ASK_UNLOCKED;
    bool refused = atomic_load(&p->refusals) != refusals;
    if ((action == GA_PRIMARY_ASK_UNLOCKED || !refused) && !ga_cuda_primary_active(device))
        return action;
    ga_cuda_primary_answered(root, device, action, false);
    return refused && !ga_cuda_primary_active(device) ? GA_PRIMARY_REFUSED : GA_PRIMARY_EXISTS;
}

void ga_cuda_primary_answered(struct ga_root *root, ga_cu_device device,
                              enum ga_cuda_primary_action action, bool refused) {
    struct ga_primary *p = &ga_cuda(root)->primaries[device];
    if (refused)
        atomic_fetch_add(&p->refusals, 1);
    if (action == GA_PRIMARY_ASK && ga_mutex_is_mine(&p->asking))
        ga_mutex_unlock(&p->asking);
}

// Retain

// Arguments of a wrapped call of cuDevicePrimaryCtxRetain, and what the wrapper needs for it.
struct retaining {
    struct ga_root *root;
    GA_FN_cuDevicePrimaryCtxRetain *real;
    ga_context *context;
    ga_cu_device device;
    struct ga_thread_slot slot; // the calling thread's slot
};

// Calls the driver and accounts for the retain. request: the admitted context, which the driver
// will make; its root is NULL if the context exists. others: the context exists.
static ga_result retain(struct retaining *r, struct ga_allocation *request, bool others) {
    ga_result result = r->real(r->context, r->device);
    if (result != GA_CUDA_SUCCESS) {
        ga_cuda_context_not_made(request);
        return result;
    }
    request->entry.key = (uint64_t)(uintptr_t)*r->context;
    request->entry.kind = GA_CUDA_CONTEXT_PRIMARY;
    if (request->root)
        ga_cuda_context_made(request);
    else
        ga_cuda_context_notice(r->root, *r->context, number_of(r->root, r->device),
                               GA_CUDA_CONTEXT_PRIMARY);
    count_use(r->root, r->device, others);
    ga_thread_slot_retain(r->root, &r->slot);
    return result;
}

// Retains a context that exists. False: it does not exist.
static bool retain_existing(struct retaining *r, ga_result *result) {
    struct ga_allocation none = {.root = NULL};
    bool in_call = begin_call(r->root, r->device);
    bool exists = ga_cuda_primary_active(r->device);
    if (exists)
        *result = retain(r, &none, true);
    end_call(r->root, r->device, in_call);
    return exists;
}

// Retains a context that does not exist. The daemon is asked before driver_call is locked, because
// the daemon may delay its answer. *refused: the daemon refused.
static ga_result retain_new(struct retaining *r, bool *refused) {
    struct ga_allocation request = {.full = 0};
    ga_result result;
    do {
        *refused = !ga_cuda_context_ask(&request, r->device);
        if (*refused)
            return GA_CUDA_OUT_OF_MEMORY;
        bool in_call = begin_call(r->root, r->device);
        bool exists =
            ga_cuda_primary_active(r->device); // true: made by a call that the library does not see
        result = retain(r, &request, exists);
        end_call(r->root, r->device, in_call);
    } while (ga_admit_again(request.root, &request.full, result == GA_CUDA_OUT_OF_MEMORY));
    return result;
}

// Retains the context, whether it exists or not.
static ga_result retain_or_make(struct retaining *r) {
    ga_result result = GA_CUDA_OUT_OF_MEMORY;
    for (;;) {
        enum ga_cuda_primary_action action = ga_cuda_primary_begin(r->root, r->device);
        if (action == GA_PRIMARY_REFUSED)
            return GA_CUDA_OUT_OF_MEMORY;
        if (action == GA_PRIMARY_EXISTS) {
            if (retain_existing(r, &result))
                return result;
            continue; // the context has ended meanwhile
        }
        bool refused;
        result = retain_new(r, &refused);
        ga_cuda_primary_answered(r->root, r->device, action, refused);
        return result;
    }
}

// Asks for the thread's slot first, and then for the context if it does not exist.
ga_result ga_cuda_primary_retain(GA_FN_cuDevicePrimaryCtxRetain *real, ga_context *context,
                                 ga_cu_device device) {
    struct ga_root *root = ga_root_get();
    if (!root && ga_root_denies())
        return GA_CUDA_OUT_OF_MEMORY;
    int number = root ? ga_cuda_device_number(root, device) : -1;
    if (number < 0)
        return real(context, device);
    struct retaining r = {.root = root, .real = real, .context = context, .device = device};
    if (!ga_thread_slot_ask(root, (uint32_t)number, &r.slot))
        return GA_CUDA_OUT_OF_MEMORY;
    ga_result result = retain_or_make(&r);
    if (result != GA_CUDA_SUCCESS)
        ga_thread_slot_unask(root, &r.slot);
    return result;
}

void ga_cuda_primary_ended(struct ga_root *root, ga_cu_device device) {
    ga_cuda_context_end(root, serial_of(root, device));
    clear_uses(root, device);
}

// Reports whether the context will exist after one release. Only the retains that the library has
// seen count, because the driver does not report its own count.
static bool stays_alive(struct ga_root *root, ga_cu_device device) {
    struct ga_primary *p = lock(root, device);
    bool exists = p->uses > 1 || (p->uses == 1 && p->others);
    ga_self_unlock(&p->lock);
    return exists;
}

void ga_cuda_primary_others_released(struct ga_root *root, ga_cu_device device) {
    struct ga_primary *p = lock(root, device);
    p->others = false;
    ga_self_unlock(&p->lock);
}

// A reset ends the context and all thread slots on it, although the program must still release its
// retains. A release may end the context even if stays_alive returned true: another thread may have
// released it by a call that the library does not see.
ga_result ga_cuda_primary_end(ga_result (*real)(ga_cu_device), bool reset, ga_cu_device device) {
    struct ga_root *root = ga_root_get();
    if (!root || ga_cuda_device_number(root, device) < 0)
        return real(device);
    bool in_call = begin_call(root, device);
    bool asking_locked =
        (reset || !in_call || !stays_alive(root, device)) && ga_cuda_teardown_begin(root);
    ga_result result = real(device);
    if (result == GA_CUDA_SUCCESS && (reset || !ga_cuda_primary_active(device)))
        ga_cuda_primary_ended(root, device);
    else if (result == GA_CUDA_SUCCESS)
        count_release(root, device);
    ga_cuda_teardown_finish(root, asking_locked);
    end_call(root, device, in_call);
    return result;
}
