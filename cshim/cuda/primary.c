// SPDX-License-Identifier: Apache-2.0
// The retains and releases of primary contexts, and who asks the daemon for one (primary.h).
#include "cuda/primary.h"

#include "core/admit.h"
#include "core/log.h"
#include "core/thread_slot.h"
#include "cuda/context.h"
#include "cuda/device.h"
#include "cuda/state.h"
#include "cuda/teardown.h"

// If slots are counted by thread, each thread that retains a primary context takes a slot, also the
// thread that makes the context, and keeps the slot until it releases.

// Returns gpuarb's number of a device that has one: a retained context was asked for.
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
static void let_go(struct ga_root *root, ga_cu_device device) {
    struct ga_primary *p = lock(root, device);
    if (p->uses)
        p->uses--;
    ga_self_unlock(&p->lock);
    ga_thread_slot_release(root, number_of(root, device));
}

// Sets the counts to 0, because the context has ended.
static void all_let_go(struct ga_root *root, ga_cu_device device) {
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
// kind PRIMARY is surely it; one that was found in use most likely is.
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

// A turn makes a driver call and its accounting one step. Without it, this could happen: one thread
// ends the context, another makes a new one, and the first then takes the new one out of the table.
// The wait for a turn is bounded, because it is a wait for the driver.
#define TURN_MS 5000

// Begins a turn. False: the caller goes on without one, because the driver is busy, or because the
// thread is in a turn already: when a context ends, the driver calls destructors of the CUDA
// runtime and of the program, which may call these wrappers.
static bool begin_turn(struct ga_root *root, ga_cu_device device) {
    struct ga_primary *p = &ga_cuda(root)->primaries[device];
    if (ga_mutex_lock(&p->turn, TURN_MS))
        return true;
    if (!ga_mutex_is_mine(&p->turn))
        ga_log("the driver is busy with GPU %u's primary context for %u s: goes on without",
               (uint64_t)device, (uint64_t)TURN_MS / 1000);
    return false;
}

static void end_turn(struct ga_root *root, ga_cu_device device, bool mine) {
    struct ga_primary *p = &ga_cuda(root)->primaries[device];
    if (mine)
        ga_mutex_unlock(&p->turn);
}

// Asking

// Waits until no other thread asks for the context. False: the caller goes on without.
static bool begin_asking(struct ga_root *root, struct ga_primary *p) {
    bool mine = ga_mutex_lock(&p->asking, 0);
    if (!mine && ga_mutex_is_mine(&p->asking))
        return false; // this is a signal handler that has interrupted the asking thread
    if (!mine) {
        ga_threads_set_dependent(root, true);
        ga_mutex_lock(&p->asking, -1);
        ga_threads_set_dependent(root, false);
    }
    return true;
}

enum ga_cuda_primary_way ga_cuda_primary_begin(struct ga_root *root, ga_cu_device device) {
    struct ga_primary *p = &ga_cuda(root)->primaries[device];
    if (ga_cuda_primary_active(device))
        return GA_PRIMARY_LIVES;
    uint32_t refusals = atomic_load(&p->refusals);
    enum ga_cuda_primary_way way = begin_asking(root, p) ? GA_PRIMARY_ASK : GA_PRIMARY_ASK_BESIDE;
    bool refused = atomic_load(&p->refusals) != refusals;
    if ((way == GA_PRIMARY_ASK_BESIDE || !refused) && !ga_cuda_primary_active(device))
        return way;
    ga_cuda_primary_answered(root, device, way, false);
    return refused && !ga_cuda_primary_active(device) ? GA_PRIMARY_REFUSED : GA_PRIMARY_LIVES;
}

void ga_cuda_primary_answered(struct ga_root *root, ga_cu_device device,
                              enum ga_cuda_primary_way way, bool refused) {
    struct ga_primary *p = &ga_cuda(root)->primaries[device];
    if (refused)
        atomic_fetch_add(&p->refusals, 1);
    if (way == GA_PRIMARY_ASK && ga_mutex_is_mine(&p->asking))
        ga_mutex_unlock(&p->asking);
}

// Retain

// A retain that the driver is being asked for.
struct retaining {
    struct ga_root *root;
    GA_FN_cuDevicePrimaryCtxRetain *real;
    ga_context *context;
    ga_cu_device device;
    struct ga_thread_slot hold; // of the calling thread
};

// Calls the driver and accounts for the retain. ask: the context that was asked for, because it is
// to be made; its root is NULL if the context exists. others: the context exists.
static ga_result retain(struct retaining *r, struct ga_allocation *ask, bool others) {
    ga_result result = r->real(r->context, r->device);
    if (result != GA_CUDA_SUCCESS) {
        ga_cuda_context_unmade(ask);
        return result;
    }
    ask->entry.key = (uint64_t)(uintptr_t)*r->context;
    ask->entry.kind = GA_CUDA_CONTEXT_PRIMARY;
    if (ask->root)
        ga_cuda_context_made(ask);
    else
        ga_cuda_context_notice(r->root, *r->context, number_of(r->root, r->device),
                               GA_CUDA_CONTEXT_PRIMARY);
    count_use(r->root, r->device, others);
    ga_thread_slot_retain(r->root, &r->hold);
    return result;
}

// Retains a context that exists. False: it does not exist.
static bool retain_living(struct retaining *r, ga_result *result) {
    struct ga_allocation none = {.root = NULL};
    bool turn = begin_turn(r->root, r->device);
    bool lives = ga_cuda_primary_active(r->device);
    if (lives)
        *result = retain(r, &none, true);
    end_turn(r->root, r->device, turn);
    return lives;
}

// Retains a context that does not exist. It asks the daemon before it begins the turn, because the
// daemon may let it wait. *refused: the daemon refused.
static ga_result retain_new(struct retaining *r, bool *refused) {
    struct ga_allocation ask;
    *refused = !ga_cuda_context_ask(&ask, r->device);
    if (*refused)
        return GA_CUDA_OUT_OF_MEMORY;
    bool turn = begin_turn(r->root, r->device);
    bool lives =
        ga_cuda_primary_active(r->device); // true: made by a call that the library does not see
    ga_result result = retain(r, &ask, lives);
    end_turn(r->root, r->device, turn);
    return result;
}

static ga_result retain_anyhow(struct retaining *r) {
    ga_result result = GA_CUDA_OUT_OF_MEMORY;
    for (;;) {
        enum ga_cuda_primary_way way = ga_cuda_primary_begin(r->root, r->device);
        if (way == GA_PRIMARY_REFUSED)
            return GA_CUDA_OUT_OF_MEMORY;
        if (way == GA_PRIMARY_LIVES) {
            if (retain_living(r, &result))
                return result;
            continue; // it has ended in the meantime
        }
        bool refused;
        result = retain_new(r, &refused);
        ga_cuda_primary_answered(r->root, r->device, way, refused);
        return result;
    }
}

// Asks for the thread's hold first, and then for the context if it does not exist.
ga_result ga_cuda_primary_retain(GA_FN_cuDevicePrimaryCtxRetain *real, ga_context *context,
                                 ga_cu_device device) {
    struct ga_root *root = ga_root_get();
    if (!root && ga_root_denies())
        return GA_CUDA_OUT_OF_MEMORY;
    int number = root ? ga_cuda_device_number(root, device) : -1;
    if (number < 0)
        return real(context, device);
    struct retaining r = {.root = root, .real = real, .context = context, .device = device};
    if (!ga_thread_slot_ask(root, (uint32_t)number, &r.hold))
        return GA_CUDA_OUT_OF_MEMORY;
    ga_result result = retain_anyhow(&r);
    if (result != GA_CUDA_SUCCESS)
        ga_thread_slot_unask(root, &r.hold);
    return result;
}

void ga_cuda_primary_ended(struct ga_root *root, ga_cu_device device) {
    ga_cuda_context_end(root, serial_of(root, device));
    all_let_go(root, device);
}

// Reports whether the context will live after one release, by the retains that the library has
// seen: the driver does not tell its own count.
static bool lives_on(struct ga_root *root, ga_cu_device device) {
    struct ga_primary *p = lock(root, device);
    bool lives = p->uses > 1 || (p->uses == 1 && p->others);
    ga_self_unlock(&p->lock);
    return lives;
}

void ga_cuda_primary_others_left(struct ga_root *root, ga_cu_device device) {
    struct ga_primary *p = lock(root, device);
    p->others = false;
    ga_self_unlock(&p->lock);
}

// A reset ends the context, and all holds on it, although the program still has to release its
// retains. A release may end the context even if lives_on said otherwise: another thread may have
// released it by a call that the library does not see.
ga_result ga_cuda_primary_end(ga_result (*real)(ga_cu_device), bool reset, ga_cu_device device) {
    struct ga_root *root = ga_root_get();
    if (!root || ga_cuda_device_number(root, device) < 0)
        return real(device);
    bool turn = begin_turn(root, device);
    bool quiet = (reset || !turn || !lives_on(root, device)) && ga_cuda_teardown_begin(root);
    ga_result result = real(device);
    if (result == GA_CUDA_SUCCESS && (reset || !ga_cuda_primary_active(device)))
        ga_cuda_primary_ended(root, device);
    else if (result == GA_CUDA_SUCCESS)
        let_go(root, device);
    ga_cuda_teardown_finish(root, quiet);
    end_turn(root, device, turn);
    return result;
}
