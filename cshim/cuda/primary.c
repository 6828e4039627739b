// SPDX-License-Identifier: Apache-2.0
#include "cuda/primary.h"

#include "core/admit.h"
#include "core/hold.h"
#include "core/log.h"
#include "cuda/context.h"
#include "cuda/device.h"
#include "cuda/state.h"
#include "cuda/teardown.h"

// Where slots are the threads', each thread that retains it takes one, its maker too, and keeps it
// until it lets go.

// Of one that is known: what is retained was asked for.
static uint32_t number_of(struct ga_root *root, ga_cu_device device) {
    return (uint32_t)ga_cuda_device_number(root, device);
}

static struct ga_primary *lock(struct ga_root *root, ga_cu_device device) {
    struct ga_primary *p = &ga_cuda(root)->primaries[device];
    ga_self_lock(&p->lock);
    return p;
}

// others: somebody else had it already.
static void count_use(struct ga_root *root, ga_cu_device device, bool others) {
    struct ga_primary *p = lock(root, device);
    if (p->uses++ == 0)
        p->others = others;
    ga_self_unlock(&p->lock);
}

static void let_go(struct ga_root *root, ga_cu_device device) {
    struct ga_primary *p = lock(root, device);
    if (p->uses)
        p->uses--;
    ga_self_unlock(&p->lock);
    ga_hold_release(root, number_of(root, device));
}

static void all_let_go(struct ga_root *root, ga_cu_device device) {
    struct ga_primary *p = lock(root, device);
    p->uses = 0;
    p->others = false;
    ga_self_unlock(&p->lock);
    ga_hold_release_all(root, number_of(root, device));
}

bool ga_cuda_primary_active(ga_cu_device device) {
    unsigned int flags;
    int active = 0;
    return GA_ASK(cuDevicePrimaryCtxGetState, device, &flags, &active) && active != 0;
}

// The serial number of a device's primary context as far as it was noticed; 0 when it was not.
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

// The driver's call and what is written down about it are one step: else one thread's end of the
// context could be taken for the end of the one that another has made since. Bounded, because it
// is a wait for the driver.
#define TURN_MS 5000

// False: it goes on without. The driver calls destructors of the CUDA runtime, and of whoever asked
// it to, when a context ends; what they call of ours is inside their thread's own turn.
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

// Who asks

// False: it goes on without.
static bool begin_asking(struct ga_root *root, struct ga_primary *p) {
    bool mine = ga_mutex_lock(&p->asking, 0);
    if (!mine && ga_mutex_is_mine(&p->asking))
        return false; // from a handler that interrupted it
    if (!mine) {
        ga_threads_aside(root, true);
        ga_mutex_lock(&p->asking, -1);
        ga_threads_aside(root, false);
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

// One retain on its way.
struct retaining {
    struct ga_root *root;
    GA_FN_cuDevicePrimaryCtxRetain *real;
    ga_context *context;
    ga_cu_device device;
    struct ga_hold hold; // the thread's
};

// ask: what was asked for, if the context is to be made; without a root it is there.
static ga_result retain(struct retaining *r, struct ga_claim *ask, bool others) {
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
    ga_hold_retain(r->root, &r->hold);
    return result;
}

// False: it is not there.
static bool retain_living(struct retaining *r, ga_result *result) {
    struct ga_claim none = {.root = NULL};
    bool turn = begin_turn(r->root, r->device);
    bool lives = ga_cuda_primary_active(r->device);
    if (lives)
        *result = retain(r, &none, true);
    end_turn(r->root, r->device, turn);
    return lives;
}

// Asked for before a turn is taken, because that may wait.
static ga_result retain_new(struct retaining *r, bool *refused) {
    struct ga_claim ask;
    *refused = !ga_cuda_context_ask(&ask, r->device);
    if (*refused)
        return GA_CUDA_OUT_OF_MEMORY;
    bool turn = begin_turn(r->root, r->device);
    bool lives = ga_cuda_primary_active(r->device); // made by a way that nobody sees
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
            continue; // it has ended since
        }
        bool refused;
        result = retain_new(r, &refused);
        ga_cuda_primary_answered(r->root, r->device, way, refused);
        return result;
    }
}

// The thread's slot comes first, then, where it is not there yet, the context.
ga_result ga_cuda_primary_retain(GA_FN_cuDevicePrimaryCtxRetain *real, ga_context *context,
                                 ga_cu_device device) {
    struct ga_root *root = ga_root_get();
    if (!root && ga_root_denies())
        return GA_CUDA_OUT_OF_MEMORY;
    int number = root ? ga_cuda_device_number(root, device) : -1;
    if (number < 0)
        return real(context, device);
    struct retaining r = {.root = root, .real = real, .context = context, .device = device};
    if (!ga_hold_ask(root, (uint32_t)number, &r.hold))
        return GA_CUDA_OUT_OF_MEMORY;
    ga_result result = retain_anyhow(&r);
    if (result != GA_CUDA_SUCCESS)
        ga_hold_unask(root, &r.hold);
    return result;
}

void ga_cuda_primary_ended(struct ga_root *root, ga_cu_device device) {
    ga_cuda_context_end(root, serial_of(root, device));
    all_let_go(root, device);
}

// Whether it lives on without one of the retains that were seen, as far as that was seen. A
// driver's own count nobody can read.
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

// After a reset those who retained it have nothing to hold, though they still have to release it.
// It may also end when it was expected to live on, if another thread has let go of it out of our
// sight.
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
