// SPDX-License-Identifier: Apache-2.0
#include "cuda_pending.h"

#include "admit.h"
#include "cuda_device.h"

// A free that has not been seen to execute.
struct item {
    struct item *next;
    uint64_t bytes;
    uint64_t context; // where event and stream live, or a ticket: then nothing may be asked of them
    ga_stream stream;
    ga_event event; // NULL: it could not be had, the stream itself is asked
    uint32_t device;
    uint16_t tag;
};

struct cached_event {
    uint64_t context;
    ga_event event;
};

#define CACHED_EVENTS 256
#define REAP_FROM 64 // so many queued frees are looked at without need

// Who holds reaping may take items off the list and call the driver about them; it is waited
// for with a time limit, because that is a wait for the driver. lock guards the rest.
struct ga_cuda_pending {
    struct ga_mutex reaping;
    struct ga_spin lock;
    struct item *first;
    struct item **last;
    struct item *unused;
    uint32_t count;
    uint32_t reap_at;
    uint32_t events;
    struct cached_event cache[CACHED_EVENTS];
};

static uint64_t reap(struct ga_root *root, uint32_t device);
static const struct ga_reaper reaper = {reap};

static struct ga_cuda_pending *get(struct ga_root *root, bool make) {
    struct ga_cuda_pending *p = atomic_load(&root->pending);
    if (p || !make)
        return p;
    p = ga_root_alloc(root, sizeof *p);
    if (!p)
        return NULL;
    p->last = &p->first;
    p->reap_at = REAP_FROM;
    struct ga_cuda_pending *other = NULL;
    if (!atomic_compare_exchange_strong(&root->pending, &other, p))
        return other;
    ga_admit_set_reaper(&reaper);
    return p;
}

static void lock(struct ga_cuda_pending *p) {
    ga_self_enter();
    ga_spin_lock(&p->lock);
}

static void unlock(struct ga_cuda_pending *p) {
    ga_spin_unlock(&p->lock);
    ga_self_leave();
}

// A thread in relaxed mode may query events while another one captures a stream; in any other
// mode that would break the capture. Returns the mode that was in force.
static int exchange_capture_mode(int mode) {
    if (GA_REAL(cuThreadExchangeStreamCaptureMode))
        GA_REAL(cuThreadExchangeStreamCaptureMode)(&mode);
    return mode;
}

static ga_event take_event(struct ga_cuda_pending *p, uint64_t context) {
    ga_event event = NULL;
    lock(p);
    for (uint32_t i = p->events; i-- > 0;) {
        if (p->cache[i].context == context) {
            event = p->cache[i].event;
            p->cache[i] = p->cache[--p->events];
            break;
        }
    }
    unlock(p);
    return event;
}

static void give_event(struct ga_cuda_pending *p, uint64_t context, ga_event event) {
    lock(p);
    bool kept = p->events < CACHED_EVENTS;
    if (kept)
        p->cache[p->events++] = (struct cached_event){context, event};
    unlock(p);
    if (!kept && GA_REAL(cuEventDestroy_v2))
        GA_REAL(cuEventDestroy_v2)(event);
}

// An event belongs to the context that is current when it is made, and can be recorded only in
// streams of the same.
static ga_event make_event(uint64_t context) {
    ga_event event = NULL;
    ga_context current = NULL;
    ga_context wanted = (ga_context)(uintptr_t)context;
    if (!GA_REAL(cuEventCreate))
        return NULL;
    GA_REAL(cuCtxGetCurrent)(&current);
    bool push = current != wanted && GA_REAL(cuCtxPushCurrent_v2) && GA_REAL(cuCtxPopCurrent_v2) &&
                GA_REAL(cuCtxPushCurrent_v2)(wanted) == GA_CUDA_SUCCESS;
    int mode = exchange_capture_mode(GA_CUDA_CAPTURE_MODE_RELAXED);
    if (GA_REAL(cuEventCreate)(&event, GA_CUDA_EVENT_DISABLE_TIMING) != GA_CUDA_SUCCESS)
        event = NULL;
    exchange_capture_mode(mode);
    if (push)
        GA_REAL(cuCtxPopCurrent_v2)(&current);
    return event;
}

static uint64_t context_of(ga_stream stream) {
    ga_context context = NULL;
    bool asked = (uintptr_t)stream > (uintptr_t)GA_CUDA_STREAM_PER_THREAD &&
                 GA_REAL(cuStreamGetCtx) &&
                 GA_REAL(cuStreamGetCtx)(stream, &context) == GA_CUDA_SUCCESS;
    if (!asked)
        GA_REAL(cuCtxGetCurrent)(&context);
    return (uint64_t)(uintptr_t)context;
}

static ga_event record_event(struct ga_cuda_pending *p, uint64_t context, ga_stream stream) {
    ga_event event = take_event(p, context);
    if (!event)
        event = make_event(context);
    if (event && GA_REAL(cuEventRecord) && GA_REAL(cuEventRecord)(event, stream) == GA_CUDA_SUCCESS)
        return event;
    if (event)
        give_event(p, context, event);
    return NULL;
}

// What the page says of pending bytes is information for people.
static void count_pending(struct ga_root *root, uint32_t device, uint64_t delta, uint16_t tag) {
    atomic_fetch_add(&root->devices[device].pending, delta);
    struct ga_view *view = atomic_load(&root->view);
    uint32_t slot = view && view->tag == tag ? atomic_load(&view->slot[device]) : 0;
    if (slot)
        atomic_store((ga_word *)&view->page->lease[slot - 1].pending,
                     atomic_load(&root->devices[device].pending));
}

static struct item *new_item(struct ga_root *root, struct ga_cuda_pending *p) {
    lock(p);
    struct item *item = p->unused;
    if (item)
        p->unused = item->next;
    unlock(p);
    return item ? item : ga_root_alloc(root, sizeof *item);
}

static void append(struct ga_cuda_pending *p, struct item *item) {
    item->next = NULL;
    *p->last = item;
    p->last = &item->next;
    p->count++;
}

void ga_cuda_pending_add(struct ga_root *root, const struct ga_entry *entry, ga_stream stream) {
    struct ga_cuda_pending *p = get(root, true);
    struct item *item = p ? new_item(root, p) : NULL;
    if (!item) {
        // No memory to wait with. The bytes are on their way back.
        ga_release(root, entry->device, entry->bytes, entry->tag);
        return;
    }
    item->bytes = entry->bytes;
    item->device = entry->device;
    item->tag = entry->tag;
    item->stream = stream;
    item->context = context_of(stream);
    item->event = record_event(p, item->context, stream);
    ga_move_begin(root);
    count_pending(root, entry->device, entry->bytes, entry->tag);
    ga_inflight_add(entry->device, 0 - entry->bytes);
    ga_move_end();
    lock(p);
    append(p, item);
    bool many = p->count >= p->reap_at;
    unlock(p);
    if (many)
        reap(root, entry->device);
}

enum { EXECUTED, NOT_YET, LEAVE };

static int look(const struct item *item) {
    ga_result result;
    if (item->context & 1)
        return LEAVE; // its context is ending
    if (item->event)
        result = GA_REAL(cuEventQuery)(item->event);
    else if (item->stream == GA_CUDA_STREAM_PER_THREAD || !GA_REAL(cuStreamQuery))
        return LEAVE; // would ask another thread's stream; its context's end settles it
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

static void finish(struct ga_root *root, struct ga_cuda_pending *p, struct item *item) {
    ga_move_begin(root);
    count_pending(root, item->device, 0 - item->bytes, item->tag);
    uint32_t notify = ga_give(root, item->device, item->bytes, item->tag);
    ga_move_end();
    if (notify)
        ga_admit_notify(root, notify - 1);
    lock(p);
    item->next = p->unused;
    p->unused = item;
    unlock(p);
}

// Streams whose first pending free was not there yet: the later ones are not either.
#define BLOCKED 8

static uint64_t reap(struct ga_root *root, uint32_t device) {
    struct ga_cuda_pending *p = get(root, false);
    if (!p || !ga_mutex_lock(&p->reaping, 100))
        return 0;
    lock(p);
    struct item *list = p->first;
    p->first = NULL;
    p->last = &p->first;
    p->count = 0;
    unlock(p);

    struct item *rest = NULL;
    struct item **rest_last = &rest;
    uint32_t kept = 0;
    ga_stream blocked[BLOCKED];
    uint32_t n_blocked = 0;
    uint64_t reaped = 0;
    int mode = list ? exchange_capture_mode(GA_CUDA_CAPTURE_MODE_RELAXED) : 0;
    while (list) {
        struct item *item = list;
        list = item->next;
        bool behind = false;
        // Two per-thread default streams share one name, so that name says nothing.
        for (uint32_t i = 0; i < n_blocked && item->stream != GA_CUDA_STREAM_PER_THREAD; i++)
            behind |= blocked[i] == item->stream;
        int seen = behind ? NOT_YET : look(item);
        if (seen == EXECUTED) {
            if (item->device == device)
                reaped += item->bytes;
            if (item->event)
                give_event(p, item->context, item->event);
            finish(root, p, item);
            continue;
        }
        if (seen == NOT_YET && !behind && n_blocked < BLOCKED)
            blocked[n_blocked++] = item->stream;
        item->next = NULL;
        *rest_last = item;
        rest_last = &item->next;
        kept++;
    }
    if (rest || n_blocked || reaped)
        exchange_capture_mode(mode);

    // Back in front of what was added meanwhile.
    lock(p);
    if (rest) {
        *rest_last = p->first;
        if (!p->first)
            p->last = rest_last;
        p->first = rest;
    }
    p->count += kept;
    p->reap_at = p->count * 2 > REAP_FROM ? p->count * 2 : REAP_FROM;
    unlock(p);
    ga_mutex_unlock(&p->reaping);
    return reaped;
}

void ga_cuda_pending_mark(struct ga_root *root, uint64_t context, uint64_t becomes) {
    struct ga_cuda_pending *p = get(root, false);
    if (!p)
        return;
    bool held = ga_mutex_lock(&p->reaping, 5000);
    lock(p);
    for (struct item *i = p->first; i; i = i->next)
        if (i->context == context)
            i->context = becomes;
    for (uint32_t i = 0; i < p->events; i++)
        if (p->cache[i].context == context)
            p->cache[i].context = becomes;
    unlock(p);
    if (held)
        ga_mutex_unlock(&p->reaping);
}

// Takes the items that fit off the list and gives their bytes back.
static void settle(struct ga_root *root, struct ga_cuda_pending *p, uint64_t context,
                   ga_stream stream) {
    struct item *done = NULL;
    lock(p);
    for (struct item **at = &p->first; *at;) {
        struct item *item = *at;
        bool fits = stream ? !item->event && item->stream == stream : item->context == context;
        if (!fits) {
            at = &item->next;
            continue;
        }
        *at = item->next;
        p->count--;
        item->next = done;
        done = item;
    }
    p->last = &p->first;
    while (*p->last)
        p->last = &(*p->last)->next;
    for (uint32_t i = 0; !stream && i < p->events;) {
        if (p->cache[i].context == context)
            p->cache[i] = p->cache[--p->events]; // the driver destroyed it with its context
        else
            i++;
    }
    unlock(p);
    while (done) {
        struct item *item = done;
        done = item->next;
        finish(root, p, item);
    }
}

void ga_cuda_pending_sweep(struct ga_root *root, uint64_t ticket) {
    struct ga_cuda_pending *p = get(root, false);
    if (!p)
        return;
    bool held = ga_mutex_lock(&p->reaping, 5000);
    settle(root, p, ticket, NULL);
    if (held)
        ga_mutex_unlock(&p->reaping);
}

void ga_cuda_pending_stream_gone(struct ga_root *root, ga_stream stream) {
    struct ga_cuda_pending *p = get(root, false);
    if (!p || !stream || atomic_load(&p->reaping.state) != 0)
        return;
    if (ga_mutex_lock(&p->reaping, 100)) {
        settle(root, p, 0, stream);
        ga_mutex_unlock(&p->reaping);
    }
}
