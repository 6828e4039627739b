// SPDX-License-Identifier: Apache-2.0
#include "cuda_primary.h"

#include "admit.h"
#include "cuda_context.h"
#include "cuda_device.h"
#include "hold.h"
#include "log.h"

// Where slots are the threads', each thread that retains it takes one, its maker too, and keeps it
// until it lets go.

// False: there is no place to remember it in; further threads hold no slot of their own.
static bool hold_locked(struct ga_primary *p, uint32_t thread, uint16_t tag, bool told) {
    struct ga_retainer *free = NULL;
    for (size_t i = 0; i < GA_RETAINERS; i++) {
        struct ga_retainer *r = &p->retainers[i];
        if (r->count && r->thread == thread) {
            r->count++;
            return true;
        }
        if (!r->count && !free)
            free = r;
    }
    if (free)
        *free = (struct ga_retainer){.thread = thread, .count = 1, .tag = tag, .told = told};
    return free != NULL;
}

static bool hold(struct ga_root *root, uint32_t device, const struct ga_retainer *mine) {
    struct ga_primary *p = &root->primaries[device];
    ga_self_enter();
    ga_spin_lock(&p->lock);
    bool held = hold_locked(p, mine->thread, mine->tag, mine->told);
    ga_spin_unlock(&p->lock);
    ga_self_leave();
    return held;
}

bool ga_cuda_primary_held(struct ga_root *root, uint32_t device) {
    struct ga_primary *p = &root->primaries[device];
    bool found = false;
    ga_self_enter();
    ga_spin_lock(&p->lock);
    for (size_t i = 0; i < GA_RETAINERS; i++)
        found |= p->retainers[i].count && p->retainers[i].thread == ga_self.number;
    ga_spin_unlock(&p->lock);
    ga_self_leave();
    return found;
}

static void give_hold(struct ga_root *root, uint32_t device, const struct ga_retainer *r) {
    uint16_t tag = r->tag;
    if (r->told)
        ga_admit_contexts(root, device, -1, GA_FLAG_HOLD, r->thread, &tag);
}

// One retain less: the calling thread's own, or, where it has none, somebody's.
static void let_go(struct ga_root *root, uint32_t device) {
    struct ga_primary *p = &root->primaries[device];
    struct ga_retainer *of = NULL;
    struct ga_retainer last = {0};
    ga_self_enter();
    ga_spin_lock(&p->lock);
    for (size_t i = 0; i < GA_RETAINERS; i++) {
        struct ga_retainer *r = &p->retainers[i];
        if (r->count && (!of || r->thread == ga_self.number))
            of = r;
    }
    if (of && --of->count == 0)
        last = *of;
    ga_spin_unlock(&p->lock);
    ga_self_leave();
    give_hold(root, device, &last);
}

static void all_let_go(struct ga_root *root, uint32_t device) {
    struct ga_primary *p = &root->primaries[device];
    struct ga_retainer gone[GA_RETAINERS];
    ga_self_enter();
    ga_spin_lock(&p->lock);
    for (size_t i = 0; i < GA_RETAINERS; i++) {
        gone[i] = p->retainers[i];
        p->retainers[i] = (struct ga_retainer){0};
    }
    ga_spin_unlock(&p->lock);
    ga_self_leave();
    for (size_t i = 0; i < GA_RETAINERS; i++)
        if (gone[i].count)
            give_hold(root, device, &gone[i]);
}

bool ga_cuda_primary_active(ga_cu_device device) {
    unsigned int flags;
    int active = 0;
    return GA_REAL(cuDevicePrimaryCtxGetState) &&
           GA_REAL(cuDevicePrimaryCtxGetState)(device, &flags, &active) == GA_CUDA_SUCCESS &&
           active != 0;
}

struct search {
    uint32_t device;
    struct ga_entry found;
};

static void match_primary(void *arg, const struct ga_entry *e) {
    struct search *s = arg;
    bool better = e->kind == GA_CUDA_CONTEXT_PRIMARY || s->found.key == 0;
    if (e->device == s->device && e->kind <= GA_CUDA_CONTEXT_PRIMARY && better)
        s->found = *e;
}

static struct ga_entry find(struct ga_root *root, ga_cu_device device) {
    struct search s = {.device = (uint32_t)device};
    ga_self_enter();
    ga_table_each(&root->contexts, match_primary, &s);
    ga_self_leave();
    return s.found;
}

uint64_t ga_cuda_primary_of(struct ga_root *root, ga_cu_device device) {
    return find(root, device).key;
}

// The driver's call and what is written down about it are one step: else one thread's end of the
// context could be taken for the end of the one that another has made since. Bounded, because it
// is a wait for the driver.
#define TURN_MS 5000

// False: it goes on without. The driver calls destructors of the CUDA runtime, and of whoever asked
// it to, when a context ends; what they call of ours is inside their thread's own turn.
static bool begin_turn(struct ga_root *root, uint32_t device) {
    struct ga_primary *p = &root->primaries[device];
    if (ga_mutex_lock(&p->turn, TURN_MS))
        return true;
    if (!ga_mutex_is_mine(&p->turn))
        ga_log("the driver is busy with GPU %u's primary context for %u s: goes on without",
               (uint64_t)device, (uint64_t)TURN_MS / 1000);
    return false;
}

static void end_turn(struct ga_root *root, uint32_t device, bool mine) {
    struct ga_primary *p = &root->primaries[device];
    if (mine)
        ga_mutex_unlock(&p->turn);
}

static ga_result retain(const struct ga_cuda_context_ask *ask, struct ga_root *root,
                        GA_FN_cuDevicePrimaryCtxRetain *real, ga_context *context,
                        ga_cu_device device) {
    ga_result result = real(context, device);
    if (result != GA_CUDA_SUCCESS) {
        ga_cuda_context_unmade(ask);
        return result;
    }
    struct ga_entry made = {.key = (uint64_t)(uintptr_t)*context, .kind = GA_CUDA_CONTEXT_PRIMARY};
    if (ask->root)
        ga_cuda_context_made(ask, &made);
    else
        ga_cuda_context_notice(root, *context, (uint32_t)device, GA_CUDA_CONTEXT_PRIMARY);
    return result;
}

// The thread's slot comes first, then, where it is not there yet, the context.
ga_result ga_cuda_primary_retain(GA_FN_cuDevicePrimaryCtxRetain *real, ga_context *context,
                                 ga_cu_device device) {
    struct ga_cuda_context_ask ask = {.root = NULL};
    struct ga_root *root = ga_root_get();
    if (!root || !ga_cuda_device_know(root, device))
        return real(context, device);
    struct ga_retainer mine = {.thread = ga_self.number};
    mine.told =
        ga_hold_matters(root, (uint32_t)device) && !ga_cuda_primary_held(root, (uint32_t)device);
    if (mine.told &&
        !ga_admit_contexts(root, (uint32_t)device, 1, GA_FLAG_HOLD, mine.thread, &mine.tag))
        return GA_CUDA_OUT_OF_MEMORY;
    if (!ga_cuda_primary_active(device) && !ga_cuda_context_ask(&ask, device)) {
        give_hold(root, (uint32_t)device, &mine);
        return GA_CUDA_OUT_OF_MEMORY;
    }
    bool turn = begin_turn(root, (uint32_t)device);
    ga_result result = retain(&ask, root, real, context, device);
    bool held = result == GA_CUDA_SUCCESS && hold(root, (uint32_t)device, &mine);
    end_turn(root, (uint32_t)device, turn);
    if (!held)
        give_hold(root, (uint32_t)device, &mine);
    return result;
}

void ga_cuda_primary_settle(struct ga_root *root, ga_cu_device device, uint64_t context,
                            uint64_t ticket, bool ended) {
    if (!ended) {
        ga_cuda_context_unmark(root, context, ticket);
        return;
    }
    ga_cuda_context_gone(root, context, ticket);
    all_let_go(root, (uint32_t)device);
}

// Release and Reset: the context may end with it, and what lived there with the context. After a
// reset those who retained it have nothing to hold, though they still have to release it.
static ga_result end_primary(ga_result (*real)(ga_cu_device), ga_cu_device device, bool reset) {
    struct ga_root *root = ga_root_get();
    uint64_t context = root ? ga_cuda_primary_of(root, device) : 0;
    if (!context)
        return real(device);
    bool turn = begin_turn(root, (uint32_t)device);
    uint64_t ticket = ga_cuda_context_mark(root, context);
    ga_result result = real(device);
    bool ended = result == GA_CUDA_SUCCESS && (reset || !ga_cuda_primary_active(device));
    ga_cuda_primary_settle(root, device, context, ticket, ended);
    if (result == GA_CUDA_SUCCESS && !ended)
        let_go(root, (uint32_t)device);
    end_turn(root, (uint32_t)device, turn);
    return result;
}

ga_result ga_cuda_primary_release(GA_FN_cuDevicePrimaryCtxRelease_v2 *real, ga_cu_device device) {
    return end_primary(real, device, false);
}

ga_result ga_cuda_primary_reset(GA_FN_cuDevicePrimaryCtxReset_v2 *real, ga_cu_device device) {
    return end_primary(real, device, true);
}
