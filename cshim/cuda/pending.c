// SPDX-License-Identifier: Apache-2.0
#include "cuda/pending.h"

#include "core/admit.h"
#include "core/records.h"
#include "cuda/capture.h"
#include "cuda/context.h"
#include "cuda/device.h"
#include "cuda/idle.h"

// Adding

static bool is_handle(ga_stream stream) {
    return (uintptr_t)stream > (uintptr_t)GA_CUDA_STREAM_PER_THREAD;
}

// If the program was seen to make the stream in the context that this thread used last, the handle
// of that context is known, and the driver is not asked for it.
struct ga_cuda_at ga_cuda_pending_at(struct ga_root *root, ga_stream stream) {
    struct ga_cuda_at at = {
        .stream = stream,
        .thread = stream == GA_CUDA_STREAM_PER_THREAD ? ga_self.number : 0,
        .epoch = ga_cuda_context_epoch(root),
    };
    struct ga_entry entry;
    struct ga_entry context;
    bool known = ga_cuda_device_find_stream(root, stream, &entry);
    if (known && entry.kind == GA_CUDA_STREAM_PLAIN && ga_self.serial == entry.context &&
        !ga_self.stands_for && ga_self.context_epoch == at.epoch)
        at.handle = (ga_context)(uintptr_t)ga_self.context;
    else if (!is_handle(stream) || !GA_ASK(cuStreamGetCtx, stream, &at.handle))
        GA_REAL(cuCtxGetCurrent)(&at.handle);
    if (known)
        at.context = entry.context;
    else if (ga_cuda_context_find(root, (uint64_t)(uintptr_t)at.handle, &context))
        at.context = context.context;
    return at;
}

// Adds bytes to a record with the pools locked by ga_cuda_frees_begin, and unlocks them. If the
// stream's context has ended since *at was filled in, the bytes have executed. The sweep for that
// context may have passed before they were added, so it is done again.
static void add_and_end(struct ga_root *root, struct ga_cuda_pools *p, struct ga_cuda_frees *f,
                        const struct ga_cuda_at *at, uint64_t bytes) {
    bool ended = at->context && ga_cuda_context_any_ended(root, at->epoch) &&
                 !ga_cuda_context_lives(root, at->context);
    if (ended)
        f->at.handle = NULL;
    f->bytes += bytes;
    f->turn = ++p->frees;
    f->pool->freed += bytes;
    ga_cuda_pool_count(root, f->pool);
    ga_cuda_pools_end(p);
    if (GA_UNLIKELY(ended))
        ga_cuda_pending_sweep(root, at->context);
    ga_cuda_idle_wake(root);
}

void ga_cuda_pending_add_bytes(struct ga_root *root, struct ga_cuda_pool *pool, uint64_t bytes,
                               uint16_t tag, const struct ga_cuda_at *at) {
    struct ga_cuda_frees *f;
    struct ga_cuda_pools *p = ga_cuda_frees_begin(root, pool, at, &f);
    ga_cuda_pool_refresh(root, pool);
    if (tag != pool->tag || !f) {
        pool->live -= tag == pool->tag ? bytes : 0; // no memory to wait with
        ga_cuda_pool_count(root, pool);
        ga_cuda_pools_end(p);
        return;
    }
    pool->live -= bytes;
    if (pool->largest < bytes)
        pool->largest = bytes;
    add_and_end(root, p, f, at, bytes);
}

void ga_cuda_pending_add(struct ga_root *root, const struct ga_entry *entry,
                         const struct ga_cuda_at *at) {
    struct ga_cuda_pool *pool = (struct ga_cuda_pool *)(uintptr_t)entry->context;
    ga_cuda_pending_add_bytes(root, pool, entry->bytes, entry->tag, at);
}

void ga_cuda_pending_add_plain(struct ga_root *root, const struct ga_entry *entry,
                               const struct ga_cuda_at *at) {
    struct ga_cuda_pool *pool = ga_cuda_pool_of_kind(root, entry->device, GA_CUDA_POOL_NONE);
    struct ga_cuda_frees *f = NULL;
    struct ga_cuda_pools *p = pool ? ga_cuda_frees_begin(root, pool, at, &f) : NULL;
    if (pool)
        ga_cuda_pool_refresh(root, pool);
    if (!f || entry->tag != pool->tag) {
        if (p)
            ga_cuda_pools_end(p);
        ga_release_entry(root, entry);
        return;
    }
    pool->charge += entry->bytes;
    ga_inflight_add(entry->device, 0 - entry->bytes);
    add_and_end(root, p, f, at, entry->bytes);
}

// Clearing

// Clears a record, with the pools locked: its bytes have executed. A record that grew after turn,
// or that has become another stream's since, is left as it is.
static void clear_locked(struct ga_root *root, struct ga_cuda_frees *f, uint64_t turn) {
    if (!ga_cuda_frees_pending(f) || f->turn > turn)
        return;
    f->pool->freed -= f->bytes;
    ga_cuda_pool_count(root, f->pool);
    f->bytes = 0;
}

static void clear(struct ga_root *root, struct ga_cuda_frees *f, uint64_t turn) {
    struct ga_cuda_pools *p = ga_cuda_pools_begin(root);
    clear_locked(root, f, turn);
    ga_cuda_pools_end(p);
}

// Copies a record. False: it has nothing pending, or nothing of a device (−1: of any).
static bool copy_pending(struct ga_cuda_pools *p, const struct ga_cuda_frees *f, int device,
                         struct ga_cuda_frees *copy) {
    ga_self_lock(&p->lock);
    bool pending = ga_cuda_frees_pending(f) && (device < 0 || f->pool->device == device);
    if (pending)
        *copy = (struct ga_cuda_frees){.at = f->at, .turn = f->turn, .watched = f->watched};
    ga_self_unlock(&p->lock);
    return pending;
}

// Returns the record behind another one (NULL: the first); NULL: that was the last.
static struct ga_cuda_frees *next_of(struct ga_cuda_pools *p, const struct ga_cuda_frees *f) {
    ga_self_lock(&p->lock);
    struct ga_cuda_frees *next = f ? f->next : p->freed;
    ga_self_unlock(&p->lock);
    return next;
}

// Asks a stream in its context, which need not be the thread's current one.
static ga_result query_in(ga_context wanted, ga_stream stream) {
    ga_context current = NULL;
    GA_REAL(cuCtxGetCurrent)(&current);
    bool push = current != wanted && GA_REAL(cuCtxPopCurrent_v2);
    if (push && !GA_ASK(cuCtxPushCurrent_v2, wanted))
        return GA_CUDA_NOT_READY;
    ga_result result = GA_REAL(cuStreamQuery)(stream);
    if (push)
        GA_REAL(cuCtxPopCurrent_v2)(&current);
    return result;
}

// Whether a stream has passed what a record is about. A stream that was not seen to be made may
// have ended unseen, and is not asked; nor is another thread's default stream, nor one that is
// captured, or that a capture may depend on. The caller holds ga_cuda(root)->asking, so that none
// ends meanwhile, and no capture begins.
static bool has_passed(struct ga_root *root, const struct ga_cuda_frees *f) {
    const struct ga_cuda_at *at = &f->at;
    struct ga_entry entry;
    int status = GA_CUDA_CAPTURE_NONE;
    bool captures = atomic_load(&ga_cuda_captures) != 0;
    if (!at->handle || !at->stream || !GA_REAL(cuStreamQuery))
        return false;
    if (!is_handle(at->stream))
        return !captures && (at->thread == 0 || at->thread == ga_self.number) &&
               query_in(at->handle, at->stream) == GA_CUDA_SUCCESS;
    if (!ga_cuda_device_find_stream(root, at->stream, &entry))
        return false;
    if (captures &&
        (!GA_ASK(cuStreamIsCapturing, at->stream, &status) || status != GA_CUDA_CAPTURE_NONE))
        return false;
    return query_in(at->handle, at->stream) == GA_CUDA_SUCCESS;
}

// Asks streams that have freed something of a device (−1: of any).
static void look(struct ga_root *root, int device) {
    struct ga_cuda_pools *p = &ga_cuda(root)->pools;
    struct ga_cuda_frees copy;
    for (struct ga_cuda_frees *f = next_of(p, NULL); f; f = next_of(p, f)) {
        if (!copy_pending(p, f, device, &copy))
            continue;
        bool passed = copy.watched ? atomic_load(&f->passed) != 0 : has_passed(root, &copy);
        if (passed)
            clear(root, f, copy.turn);
    }
}

// How long a thread waits for another one that asks the driver. A thread that wants bytes from
// pools waits until the other one has trimmed them: it may then find enough, else it trims pools
// itself. A thread that only asks streams (wanted 0) gives up soon.
#define LOOK_MS 100
#define TRIM_MS 10000

uint64_t ga_cuda_pending_reap(struct ga_root *root, uint32_t device, uint64_t wanted) {
    if (!ga_mutex_lock(&ga_cuda(root)->asking, wanted ? TRIM_MS : LOOK_MS))
        return 0;
    int mode = ga_cuda_capture_exchange(GA_CUDA_CAPTURE_MODE_RELAXED);
    look(root, (int)device);
    uint64_t given = ga_cuda_pool_reap(root, (int)device, wanted);
    ga_cuda_capture_exchange(mode);
    ga_mutex_unlock(&ga_cuda(root)->asking);
    return given;
}

static bool is_in(const struct ga_cuda_frees *f, const struct ga_cuda_at *at) {
    return (at->context && f->at.context == at->context) ||
           (at->handle && f->at.handle == at->handle);
}

// Clears the records of a stream, or (stream NULL) of a context, that did not grow after a turn.
static void clear_all(struct ga_root *root, const struct ga_cuda_at *at, uint64_t turn) {
    struct ga_cuda_pools *p = ga_cuda_pools_begin(root);
    for (struct ga_cuda_frees *f = p->freed; f; f = f->next)
        if (at->stream ? ga_cuda_frees_at(f, at) : is_in(f, at))
            clear_locked(root, f, turn);
    ga_cuda_pools_end(p);
}

// Synchronisations

// NULL: nothing is pending, and no pool keeps anything.
static struct ga_root *root_if_pending(void) {
    struct ga_root *root = ga_root_get();
    return root && atomic_load_explicit(&ga_cuda(root)->pools.in_use, memory_order_relaxed) ? root
                                                                                            : NULL;
}

static uint64_t turn_of(struct ga_root *root) {
    struct ga_cuda_pools *p = &ga_cuda(root)->pools;
    ga_self_lock(&p->lock);
    uint64_t turn = p->frees;
    ga_self_unlock(&p->lock);
    return turn;
}

// A synchronisation has ended. at NULL: of an event, whose stream is not known.
static ga_result synchronized(struct ga_root *root, const struct ga_cuda_at *at, uint64_t turn,
                              ga_result result) {
    if (result != GA_CUDA_SUCCESS || !ga_mutex_lock(&ga_cuda(root)->asking, LOOK_MS))
        return result;
    int mode = ga_cuda_capture_exchange(GA_CUDA_CAPTURE_MODE_RELAXED);
    if (at)
        clear_all(root, at, turn);
    else
        look(root, -1);
    ga_cuda_pool_reap(root, -1, 0);
    ga_cuda_capture_exchange(mode);
    ga_mutex_unlock(&ga_cuda(root)->asking);
    return result;
}

ga_result ga_cuda_sync_stream(GA_FN_cuStreamSynchronize *real, ga_stream effective,
                              ga_stream stream) {
    struct ga_root *root = root_if_pending();
    if (!root)
        return real(stream);
    struct ga_cuda_at at = ga_cuda_pending_at(root, effective);
    uint64_t turn = turn_of(root);
    return synchronized(root, &at, turn, real(stream));
}

ga_result ga_cuda_sync_event(GA_FN_cuEventSynchronize *real, ga_event event) {
    struct ga_root *root = root_if_pending();
    ga_result result = real(event);
    return root ? synchronized(root, NULL, 0, result) : result;
}

// Returns what a context's synchronisation covers. A green context's covers its own streams alone,
// though it has the serial number of the primary context.
static struct ga_cuda_at all_of(struct ga_root *root, ga_context handle) {
    struct ga_entry e;
    bool whole = ga_cuda_context_find(root, (uint64_t)(uintptr_t)handle, &e) &&
                 e.kind != GA_CUDA_CONTEXT_OF_GREEN;
    return (struct ga_cuda_at){.handle = handle, .context = whole ? e.context : 0};
}

ga_result ga_cuda_sync_context(GA_FN_cuCtxSynchronize *real) {
    struct ga_root *root = root_if_pending();
    ga_context current = NULL;
    if (!root)
        return real();
    GA_REAL(cuCtxGetCurrent)(&current);
    struct ga_cuda_at at = all_of(root, current);
    uint64_t turn = turn_of(root);
    return synchronized(root, &at, turn, real());
}

ga_result ga_cuda_sync_context_v2(GA_FN_cuCtxSynchronize_v2 *real, ga_context context) {
    struct ga_root *root = root_if_pending();
    if (!root)
        return real(context);
    struct ga_cuda_at at = all_of(root, context);
    uint64_t turn = turn_of(root);
    return synchronized(root, &at, turn, real(context));
}

// Ends of streams and contexts

void ga_cuda_pending_pause(struct ga_root *root) {
    if (ga_mutex_lock(&ga_cuda(root)->asking, 5000))
        ga_mutex_unlock(&ga_cuda(root)->asking);
}

// A host function, in a thread of the driver's.
static void watch(void *record) {
    struct ga_cuda_frees *f = record;
    atomic_store(&f->passed, 1);
}

// Takes a stream's handle out of a record with pending frees, and has the record watched. False:
// the record is not the stream's, which it may have ceased to be since it was copied.
static bool unname(struct ga_root *root, struct ga_cuda_frees *f, ga_stream stream) {
    ga_self_lock(&ga_cuda(root)->pools.lock);
    bool is_its = f->at.stream == stream && ga_cuda_frees_pending(f);
    if (is_its) {
        f->at.stream = NULL;
        f->watched = true;
        atomic_store(&f->passed, 0);
    }
    ga_self_unlock(&ga_cuda(root)->pools.lock);
    return is_its;
}

// Prepares a record for the end of its stream, which cannot be asked afterwards. If the frees have
// not executed yet, a host function at the end of the stream's work sets f->passed.
static void leave(struct ga_root *root, struct ga_cuda_frees *f, ga_stream stream) {
    struct ga_cuda_frees copy;
    if (!copy_pending(&ga_cuda(root)->pools, f, -1, &copy) || copy.at.stream != stream)
        return;
    if (has_passed(root, &copy))
        clear(root, f, copy.turn);
    if (!unname(root, f, stream))
        return;
    if (!ga_cuda_capturing(stream) && GA_ASK(cuLaunchHostFunc, stream, watch, f))
        return;
    ga_self_lock(&ga_cuda(root)->pools.lock);
    f->watched = false; // its context's next synchronisation, or its end, settles it
    ga_self_unlock(&ga_cuda(root)->pools.lock);
}

void ga_cuda_pending_stream_ends(struct ga_root *root, ga_stream stream) {
    struct ga_cuda_pools *p = &ga_cuda(root)->pools;
    if (!stream || !atomic_load_explicit(&p->in_use, memory_order_relaxed))
        return;
    bool held = ga_mutex_lock(&ga_cuda(root)->asking, 5000);
    int mode = ga_cuda_capture_exchange(GA_CUDA_CAPTURE_MODE_RELAXED);
    for (struct ga_cuda_frees *f = next_of(p, NULL); f; f = next_of(p, f))
        leave(root, f, stream);
    ga_cuda_pool_reap(root, -1, 0);
    ga_cuda_capture_exchange(mode);
    if (held)
        ga_mutex_unlock(&ga_cuda(root)->asking);
}

void ga_cuda_pending_sweep(struct ga_root *root, uint64_t serial) {
    struct ga_cuda_at at = {.context = serial};
    if (!atomic_load_explicit(&ga_cuda(root)->pools.in_use, memory_order_relaxed))
        return;
    bool held = ga_mutex_lock(&ga_cuda(root)->asking, 5000);
    clear_all(root, &at, UINT64_MAX);
    ga_cuda_pool_reap(root, -1, 0);
    if (held)
        ga_mutex_unlock(&ga_cuda(root)->asking);
}
