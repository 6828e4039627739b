// SPDX-License-Identifier: Apache-2.0
#include "cuda/pending.h"

#include "core/admit.h"
#include "core/records.h"
#include "cuda/capture.h"
#include "cuda/context.h"
#include "cuda/device.h"
#include "cuda/idle.h"
#include "cuda/pool.h"
#include "cuda/state.h"

// A free that has not been seen to execute, or a call to be made then.
//
// It is on one list, that of the pending ones, from ga_cuda_pending_add to the moment when
// somebody takes it off, who then owns it and alone puts it on the list of unused ones. Its bytes
// are late as long as it is there: both change in one step, so that a thread that jumps out of the
// library, or dies, leaves none of them late for ever. Who holds
// ga_cuda(root)->asking may look at one without the lock, which nobody takes off meanwhile
// (looked).
struct ga_freed {
    struct ga_freed *next, *previous;
    uint64_t address; // 0: not a block, but run(argument)
    uint64_t bytes;
    struct ga_cuda_pool *pool; // NULL: freed in stream order, but of no pool
    void (*run)(struct ga_root *root, void *argument);
    void *argument;
    ga_context handle; // of the context where event and stream live; NULL: it has ended
    uint64_t context;  // by its serial number
    ga_stream stream;  // NULL: it is gone
    ga_event event;    // NULL: none yet, or it could not be had; the stream itself is asked
    uint32_t device;
    uint32_t notify; // once its bytes have come back: slot + 1 when the daemon is to be told
    uint16_t tag;
    bool looked;
};

#define REAP_FROM 64 // so many queued frees are looked at without need

// Whether there ever was anything to look at.
static bool is_used(const struct ga_cuda_pending *p) {
    return atomic_load_explicit(&p->used, memory_order_relaxed);
}

// Somebody left in the middle of a change: the list may lead nowhere, or in a circle. What was on
// it stays charged for ever, and is no longer late, so that nobody waits for it.
static void begin_anew_locked(struct ga_cuda_pending *p) {
    struct ga_root *root = atomic_load(&ga_root_pointer);
    p->first = p->last = NULL;
    p->count = p->events = 0;
    p->life++;
    for (uint32_t d = 0; d < GA_DEVICES; d++)
        atomic_fetch_add(&root->stranded[d], atomic_exchange(&root->devices[d].late, 0));
}

static void lock_moving(struct ga_cuda_pending *p) {
    if (GA_UNLIKELY(ga_spin_lock(&p->lock)))
        begin_anew_locked(p);
}

static void lock(struct ga_cuda_pending *p) {
    ga_self_enter();
    lock_moving(p);
}

static void unlock(struct ga_cuda_pending *p) {
    ga_spin_unlock(&p->lock);
    ga_self_leave();
}

// Not one of the default streams, which many threads call by one name.
static bool is_handle(ga_stream stream) {
    return (uintptr_t)stream > (uintptr_t)GA_CUDA_STREAM_PER_THREAD;
}

// Events

static struct ga_habit *habit_of(struct ga_cuda_pending *p, ga_stream stream, uint64_t bytes) {
    uint64_t mixed = ((uint64_t)(uintptr_t)stream ^ bytes) * 0x9e3779b97f4a7c15ull;
    return &p->habits[mixed >> 58];
}

void ga_cuda_pending_expect(struct ga_root *root, ga_stream stream, uint64_t bytes) {
    struct ga_cuda_pending *p = &ga_cuda(root)->pending;
    if (!is_handle(stream))
        return;
    lock(p);
    *habit_of(p, stream, bytes) = (struct ga_habit){stream, bytes};
    unlock(p);
}

static bool is_expected(struct ga_cuda_pending *p, const struct ga_freed *item) {
    if (!is_handle(item->stream) || item->bytes == 0 || atomic_load(&ga_cuda_captures) != 0)
        return false;
    lock(p);
    const struct ga_habit *habit = habit_of(p, item->stream, item->bytes);
    bool expected = habit->stream == item->stream && habit->bytes == item->bytes;
    unlock(p);
    return expected;
}

static ga_event take_event(struct ga_cuda_pending *p, const struct ga_cuda_pending_at *at) {
    ga_event event = NULL;
    lock(p);
    for (uint32_t i = p->events; i-- > 0;) {
        if (p->cache[i].context == at->context && p->cache[i].handle == at->handle) {
            event = p->cache[i].event;
            p->cache[i] = p->cache[--p->events];
            break;
        }
    }
    unlock(p);
    return event;
}

// Whether a context has ended since an epoch at which it lived. The list is locked, so that the
// sweep for the context comes before, and is seen, or comes after.
static bool ended_locked(struct ga_root *root, uint64_t context, uint64_t epoch) {
    return context && ga_cuda_context_any_ended(root, epoch) &&
           !ga_cuda_context_lives(root, context);
}

// epoch: read while the context lived. The event has ended if its context has since.
static void give_event(struct ga_root *root, const struct ga_cuda_pending_at *at, ga_event event) {
    struct ga_cuda_pending *p = &ga_cuda(root)->pending;
    lock(p);
    bool gone = ended_locked(root, at->context, at->epoch);
    bool kept = !gone && at->context && p->events < GA_CACHED_EVENTS;
    if (kept)
        p->cache[p->events++] = (struct ga_cached_event){at->handle, at->context, event};
    unlock(p);
    if (!gone && !kept && GA_REAL(cuEventDestroy_v2))
        GA_REAL(cuEventDestroy_v2)(event);
}

// An event belongs to the context that is current when it is made, and can be recorded only in
// streams of the same.
static ga_event make_event(ga_context wanted) {
    ga_event event = NULL;
    ga_context current = NULL;
    if (!GA_REAL(cuEventCreate))
        return NULL;
    GA_REAL(cuCtxGetCurrent)(&current);
    bool push =
        current != wanted && GA_REAL(cuCtxPopCurrent_v2) && GA_ASK(cuCtxPushCurrent_v2, wanted);
    int mode = ga_cuda_capture_exchange(GA_CUDA_CAPTURE_MODE_RELAXED);
    if (GA_REAL(cuEventCreate)(&event, GA_CUDA_EVENT_DISABLE_TIMING) != GA_CUDA_SUCCESS)
        event = NULL;
    ga_cuda_capture_exchange(mode);
    if (push)
        GA_REAL(cuCtxPopCurrent_v2)(&current);
    return event;
}

// The driver is not asked where the stream's context is the one that the thread has met last.
static void find_context(struct ga_root *root, struct ga_cuda_pending_at *at) {
    struct ga_entry stream;
    struct ga_entry context;
    bool known = ga_cuda_device_find_stream(root, at->stream, &stream);
    at->ours = known && stream.kind == GA_CUDA_STREAM_PLAIN;
    if (at->ours && ga_self.serial == stream.context && !ga_self.stands_for &&
        ga_self.context_epoch == at->epoch)
        at->handle = (ga_context)(uintptr_t)ga_self.context;
    else if (!is_handle(at->stream) || !GA_ASK(cuStreamGetCtx, at->stream, &at->handle))
        GA_REAL(cuCtxGetCurrent)(&at->handle);
    if (known)
        at->context = stream.context;
    else if (ga_cuda_context_find(root, (uint64_t)(uintptr_t)at->handle, &context))
        at->context = context.context;
}

// In a context that has ended it records none.
static ga_event record_event(struct ga_root *root, const struct ga_cuda_pending_at *at) {
    if (!at->handle)
        return NULL;
    ga_event event = take_event(&ga_cuda(root)->pending, at);
    if (!event)
        event = make_event(at->handle);
    if (event && GA_ASK(cuEventRecord, event, at->stream))
        return event;
    if (event)
        give_event(root, at, event);
    return NULL;
}

// The list

static void append_locked(struct ga_cuda_pending *p, struct ga_freed *item) {
    item->looked = false;
    item->next = NULL;
    item->previous = p->last;
    *(p->last ? &p->last->next : &p->first) = item;
    p->last = item;
    p->count++;
}

static void take_locked(struct ga_cuda_pending *p, struct ga_freed *item) {
    *(item->previous ? &item->previous->next : &p->first) = item->next;
    *(item->next ? &item->next->previous : &p->last) = item->previous;
    p->count--;
}

// A step that takes items off, or puts them in, and counts their bytes.
static void begin_step(struct ga_root *root, struct ga_cuda_pending *p) {
    ga_move_begin(root);
    lock_moving(p);
}

static void end_step(struct ga_cuda_pending *p) {
    ga_spin_unlock(&p->lock);
    ga_move_end();
}

// Puts an item in that is filled but for its event: its bytes, which were on their way, are pending
// from then on. Returns true when it is time to look.
static bool enlist(struct ga_root *root, struct ga_cuda_pending *p, struct ga_freed *item,
                   const struct ga_cuda_pending_at *at) {
    // A per-thread default stream goes by a name that every thread has one of.
    item->stream = at->stream;
    item->context = at->context;
    item->handle = at->handle;
    if (!is_used(p))
        atomic_store(&p->used, true); // before there is an event to drop
    bool late = at->ours && is_expected(p, item);
    if (!late)
        item->event = record_event(root, at);
    begin_step(root, p);
    bool ended = ended_locked(root, item->context, at->epoch);
    item->handle = ended ? NULL : item->handle;
    append_locked(p, item);
    if (item->bytes) {
        ga_cuda_pool_late(root, item->device, item->bytes, item->tag);
        ga_inflight_add(item->device, 0 - item->bytes);
    }
    bool many = p->count >= REAP_FROM && p->count >= p->reap_at;
    end_step(p);
    if (GA_UNLIKELY(ended))
        ga_cuda_pending_sweep(root, at->context);
    if (GA_UNLIKELY(late && atomic_load(&ga_cuda_captures) != 0)) // one began meanwhile
        ga_cuda_pending_watch(root, at->stream);
    return many;
}

void ga_cuda_pending_add(struct ga_root *root, const struct ga_entry *entry,
                         const struct ga_cuda_pending_at *at) {
    struct ga_cuda_pending *p = &ga_cuda(root)->pending;
    struct ga_freed *item = ga_records_take(root, &p->unused, sizeof *item);
    struct ga_cuda_pool *pool = ga_cuda_pool_of(entry);
    if (!item) { // No memory to wait with.
        if (pool)
            ga_cuda_pool_freed(root, pool, entry->bytes, entry->tag);
        else
            ga_release_entry(root, entry);
        return;
    }
    *item = (struct ga_freed){
        .address = entry->key,
        .bytes = entry->bytes,
        .pool = pool,
        .device = entry->device,
        .tag = entry->tag,
    };
    bool many = enlist(root, p, item, at);
    ga_cuda_idle_wake(root);
    if (many)
        ga_interface_reap(root, entry->device, 0);
}

bool ga_cuda_pending_call(struct ga_root *root, const struct ga_cuda_pending_at *at,
                          void (*run)(struct ga_root *root, void *argument), void *argument) {
    struct ga_cuda_pending *p = &ga_cuda(root)->pending;
    struct ga_freed *item = ga_records_take(root, &p->unused, sizeof *item);
    if (!item)
        return false;
    *item = (struct ga_freed){.run = run, .argument = argument, .device = GA_DEVICES};
    enlist(root, p, item, at);
    ga_cuda_idle_wake(root);
    return true;
}

struct ga_cuda_pending_at ga_cuda_pending_at(struct ga_root *root, ga_stream stream) {
    struct ga_cuda_pending_at at = {.stream = stream, .epoch = ga_cuda_context_epoch(root)};
    find_context(root, &at);
    return at;
}

bool ga_cuda_pending_user(struct ga_root *root, uint32_t device,
                          const struct ga_cuda_pending_at *at, struct ga_cuda_pool_user *user) {
    *user = (struct ga_cuda_pool_user){0, 0};
    if (at->stream == GA_CUDA_STREAM_PER_THREAD)
        return false;
    *user = (struct ga_cuda_pool_user){(uint64_t)(uintptr_t)at->stream, at->context};
    return ga_root_pending(root, device) != 0;
}

bool ga_cuda_pending_recall(struct ga_root *root, const struct ga_entry *like, ga_stream stream,
                            uint64_t context, uint16_t *tag) {
    struct ga_cuda_pending *p = &ga_cuda(root)->pending;
    const struct ga_cuda_pool *pool = ga_cuda_pool_of(like);
    struct ga_cuda_pending_at at = {.epoch = ga_cuda_context_epoch(root)};
    begin_step(root, p);
    struct ga_freed *item = p->last;
    while (item &&
           (item->looked ||
            (stream ? item->stream != stream || item->context != context || item->tag != like->tag
                    : item->address != like->key) ||
            item->pool != pool || item->bytes != like->bytes))
        item = item->previous;
    if (item) {
        take_locked(p, item);
        ga_inflight_add(item->device, item->bytes);
        ga_cuda_pool_not_late(root, item->device, item->bytes, item->tag);
    }
    end_step(p);
    if (!item)
        return false;
    *tag = item->tag;
    at.handle = item->handle;
    at.context = item->context;
    if (item->event)
        give_event(root, &at, item->event);
    ga_records_give(&p->unused, item);
    return true;
}

// Looking

enum { EXECUTED, NOT_YET, LEAVE };

static int look(const struct ga_freed *item) {
    ga_result result;
    if (!item->handle)
        return LEAVE; // its context has ended
    if (item->event)
        result = GA_REAL(cuEventQuery)(item->event);
    else if (!item->stream || item->stream == GA_CUDA_STREAM_PER_THREAD || !GA_REAL(cuStreamQuery))
        return LEAVE; // would ask another thread's stream; its context's end settles it
    else if (atomic_load(&ga_cuda_captures) != 0)
        return LEAVE; // a stream that is captured may not be asked
    else
        result = GA_REAL(cuStreamQuery)(item->stream);
    switch (result) {
    case GA_CUDA_SUCCESS:
        return EXECUTED;
    case GA_CUDA_NOT_READY:
        return NOT_YET;
    default:
        return LEAVE; // an error of the context, or a capture: no news
    }
}

// An item has executed: it leaves the list, and its bytes are its pool's to keep, or credit.
static void come_back_locked(struct ga_root *root, struct ga_cuda_pending *p,
                             struct ga_freed *item) {
    bool own = item->stream && item->stream != GA_CUDA_STREAM_PER_THREAD && item->handle;
    struct ga_cuda_pool_user user = {own ? (uint64_t)(uintptr_t)item->stream : 0, item->context};
    take_locked(p, item);
    if (item->pool) {
        item->notify = ga_cuda_pool_execute(root, item->pool, item->bytes, item->tag, &user);
    } else if (item->bytes) {
        item->notify = ga_give(root, item->device, item->bytes, item->tag);
        ga_cuda_pool_not_late(root, item->device, item->bytes, item->tag);
        atomic_fetch_add(&root->returned[item->device], 1);
    }
}

// What is left to do for it, without the lock.
static void finish(struct ga_root *root, struct ga_cuda_pending *p, struct ga_freed *item) {
    if (item->run)
        item->run(root, item->argument);
    if (item->notify)
        ga_session_freed(root, item->notify - 1);
    ga_records_give(&p->unused, item);
}

// Streams whose first pending free was not there yet: the later ones are not either.
#define BLOCKED 8
struct blocked {
    ga_stream stream[BLOCKED];
    uint32_t count;
};

// Two per-thread default streams share one name, so that name says nothing.
static bool is_behind(const struct blocked *b, const struct ga_freed *item) {
    for (uint32_t i = 0; i < b->count && item->stream != GA_CUDA_STREAM_PER_THREAD; i++)
        if (b->stream[i] == item->stream)
            return item->stream != NULL;
    return false;
}

static int judge(struct blocked *b, const struct ga_freed *item) {
    if (is_behind(b, item))
        return NOT_YET;
    int seen = look(item);
    if (seen == NOT_YET && b->count < BLOCKED)
        b->stream[b->count++] = item->stream;
    return seen;
}

// A walk over the list, while others put items in and take them off.
struct walk {
    struct ga_freed *item; // the one that is looked at; NULL: the end
    struct ga_freed copy;
    uint32_t left; // what comes in meanwhile is for the next walk
    uint32_t life;
    uint64_t epoch;
};

// executed: what was looked at has. False: the list is another one by now.
static bool step_locked(struct ga_root *root, struct ga_cuda_pending *p, struct walk *w,
                        bool executed) {
    bool same = w->life == p->life;
    struct ga_freed *next = !same ? NULL : w->item ? w->item->next : p->first;
    if (same && w->item)
        w->item->looked = false;
    if (same && executed)
        come_back_locked(root, p, w->item);
    w->item = w->left ? next : NULL;
    if (w->item) {
        w->left--;
        w->item->looked = true;
        w->copy = *w->item;
    }
    return same;
}

static bool step(struct ga_root *root, struct ga_cuda_pending *p, struct walk *w, bool executed) {
    begin_step(root, p);
    bool same = step_locked(root, p, w, executed);
    end_step(p);
    return same;
}

static void begin_walk(struct ga_root *root, struct ga_cuda_pending *p, struct walk *w) {
    lock(p);
    *w = (struct walk){.left = p->count, .life = p->life, .epoch = ga_cuda_context_epoch(root)};
    step_locked(root, p, w, false);
    unlock(p);
}

// Records the event that the item lacks. It comes behind the free, and behind all that the stream
// has got since.
static void watch(struct ga_root *root, struct ga_cuda_pending *p, struct walk *w) {
    struct ga_cuda_pending_at at = {w->copy.stream, w->copy.handle, w->copy.context, w->epoch,
                                    false};
    if (w->copy.event || !is_handle(at.stream))
        return;
    ga_event event = record_event(root, &at);
    lock(p);
    *habit_of(p, w->copy.stream, w->copy.bytes) = (struct ga_habit){NULL, 0};
    if (w->life == p->life)
        w->item->event = event;
    unlock(p);
}

static void look_at_all(struct ga_root *root, struct ga_cuda_pending *p) {
    struct blocked blocked = {.count = 0};
    struct walk w;
    begin_walk(root, p, &w);
    while (w.item) {
        struct ga_freed *item = w.item;
        ga_event event = w.copy.event;
        struct ga_cuda_pending_at at = {NULL, w.copy.handle, w.copy.context, w.epoch, false};
        int seen = judge(&blocked, &w.copy);
        bool done = seen == EXECUTED;
        if (seen == NOT_YET && atomic_load(&ga_cuda_captures) == 0)
            watch(root, p, &w);
        done = step(root, p, &w, done) && done;
        if (!done)
            continue;
        if (event)
            give_event(root, &at, event);
        finish(root, p, item);
    }
    lock(p);
    p->reap_at = p->count * 2;
    unlock(p);
}

static bool is_unwatched(struct ga_cuda_pending *p, ga_stream stream) {
    lock(p);
    const struct ga_freed *item = p->first;
    while (item && (item->event || !is_handle(item->stream) || (stream && item->stream != stream)))
        item = item->next;
    unlock(p);
    return item != NULL;
}

bool ga_cuda_pending_watch(struct ga_root *root, ga_stream stream) {
    struct ga_cuda_pending *p = &ga_cuda(root)->pending;
    if (!is_used(p) || !is_unwatched(p, stream))
        return true;
    if (!ga_mutex_lock(&ga_cuda(root)->asking, 5000))
        return false;
    int mode = ga_cuda_capture_exchange(GA_CUDA_CAPTURE_MODE_RELAXED);
    struct walk w;
    begin_walk(root, p, &w);
    while (w.item) {
        if (!stream || w.copy.stream == stream)
            watch(root, p, &w);
        step(root, p, &w, false);
    }
    ga_cuda_capture_exchange(mode);
    ga_mutex_unlock(&ga_cuda(root)->asking);
    return true;
}

// A thread without a context asks in one of those that it asks about; none of them ends meanwhile.
static bool enter_context(struct ga_cuda_pending *p) {
    ga_context current = NULL;
    ga_context context = NULL;
    lock(p);
    for (struct ga_freed *item = p->first; item && !context; item = item->next)
        context = item->handle;
    unlock(p);
    return context && GA_REAL(cuCtxPopCurrent_v2) &&
           GA_REAL(cuCtxGetCurrent)(&current) == GA_CUDA_SUCCESS && !current &&
           GA_ASK(cuCtxPushCurrent_v2, context);
}

static void look_at_pending(struct ga_root *root, struct ga_cuda_pending *p) {
    ga_context current;
    bool entered = enter_context(p);
    look_at_all(root, p);
    if (entered)
        GA_REAL(cuCtxPopCurrent_v2)(&current);
}

// Who wants what pools keep waits for a thread that has them give it up: what it gives back is
// there then, and for whoever is short still it is his turn. Whoever merely looks does not.
#define LOOK_MS 100
#define TRIM_MS 10000

uint64_t ga_cuda_pending_reap(struct ga_root *root, uint32_t device, uint64_t wanted) {
    struct ga_cuda_pending *p = &ga_cuda(root)->pending;
    if (!ga_mutex_lock(&ga_cuda(root)->asking, wanted ? TRIM_MS : LOOK_MS))
        return 0;
    int mode = ga_cuda_capture_exchange(GA_CUDA_CAPTURE_MODE_RELAXED);
    look_at_pending(root, p);
    uint64_t given = ga_cuda_pool_reap(root, device, wanted);
    ga_cuda_capture_exchange(mode);
    ga_mutex_unlock(&ga_cuda(root)->asking);
    return given;
}

// What ends

// Takes the items that fit off the list: they have executed.
static void settle(struct ga_root *root, struct ga_cuda_pending *p, uint64_t context,
                   ga_stream stream) {
    struct ga_freed *done = NULL;
    begin_step(root, p);
    for (struct ga_freed *item = p->first, *next; item; item = next) {
        next = item->next;
        bool fits = stream ? !item->event && item->stream == stream : item->context == context;
        if (!stream && fits)
            item->handle = NULL; // also of one that is looked at
        if (!fits || item->looked)
            continue;
        come_back_locked(root, p, item);
        item->next = done;
        done = item;
    }
    for (uint32_t i = 0; !stream && i < p->events;) {
        if (p->cache[i].context == context)
            p->cache[i] = p->cache[--p->events]; // the driver destroyed it with its context
        else
            i++;
    }
    end_step(p);
    while (done) {
        struct ga_freed *item = done;
        done = item->next;
        finish(root, p, item);
    }
}

void ga_cuda_pending_sweep(struct ga_root *root, uint64_t serial) {
    struct ga_cuda_pending *p = &ga_cuda(root)->pending;
    if (!is_used(p))
        return;
    bool held = ga_mutex_lock(&ga_cuda(root)->asking, 5000);
    settle(root, p, serial, NULL);
    if (held)
        ga_mutex_unlock(&ga_cuda(root)->asking);
    ga_cuda_pool_forget_users(root, 0, serial);
}

void ga_cuda_pending_stream_ends(struct ga_root *root, ga_stream stream) {
    struct ga_cuda_pending *p = &ga_cuda(root)->pending;
    if (!is_used(p) || !stream)
        return;
    ga_cuda_pool_forget_users(root, (uint64_t)(uintptr_t)stream, 0);
    bool watched = ga_cuda_pending_watch(root, stream); // else its context's end settles it
    lock(p);
    for (struct ga_freed *item = p->first; item; item = item->next)
        if ((item->event || !watched) && item->stream == stream)
            item->stream = NULL;
    unlock(p);
}

void ga_cuda_pending_stream_gone(struct ga_root *root, ga_stream stream) {
    struct ga_cuda_pending *p = &ga_cuda(root)->pending;
    if (!is_used(p) || !stream || !ga_mutex_lock(&ga_cuda(root)->asking, 100))
        return;
    settle(root, p, 0, stream);
    ga_mutex_unlock(&ga_cuda(root)->asking);
}
