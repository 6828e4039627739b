// SPDX-License-Identifier: Apache-2.0
// Adds and clears pending frees, and asks the driver about streams. sums.c has the records.
#include "memory/pending.h"

#include "core/admit.h"
#include "memory/idle.h"

// Adding

// Adds bytes to a record, whose pools ga_memory_frees_begin has locked, and unlocks the pools. If
// the stream's context has ended since *at was filled in, the free has executed. The thread that
// ended the context may have swept before the bytes were added here, so this thread sweeps again.
static void add_and_end(struct ga_root *root, struct ga_memory_pools *p, struct ga_memory_frees *f,
                        const struct ga_memory_at *at, uint64_t bytes) {
    bool ended = at->context && at->driver->ended(root, at);
    if (ended)
        f->at.handle = NULL;
    f->bytes += bytes;
    f->turn = ++p->frees;
    f->pool->freed += bytes;
    ga_memory_pool_count(root, f->pool);
    ga_memory_pools_end(p);
    if (GA_UNLIKELY(ended))
        ga_memory_pending_sweep(root, at->context);
    ga_memory_idle_wake(root, at->driver);
}

void ga_memory_pending_add_bytes(struct ga_root *root, struct ga_memory_pool *pool, uint64_t bytes,
                                 uint16_t tag, const struct ga_memory_at *at) {
    struct ga_memory_frees *f;
    struct ga_memory_pools *p = ga_memory_frees_begin(root, pool, at, &f);
    ga_memory_pool_refresh(root, pool);
    if (tag != pool->tag || !f) {
        // Bytes of an earlier session are in no sum. Without memory for a record, counts the free
        // as executed; the next reading charges the pool with what it has reserved.
        pool->live -= tag == pool->tag ? bytes : 0;
        ga_memory_pool_count(root, pool);
        ga_memory_pools_end(p);
        return;
    }
    pool->live -= bytes;
    if (pool->largest < bytes)
        pool->largest = bytes;
    add_and_end(root, p, f, at, bytes);
}

void ga_memory_pending_add(struct ga_root *root, const struct ga_entry *entry,
                           const struct ga_memory_at *at) {
    struct ga_memory_pool *pool = (struct ga_memory_pool *)(uintptr_t)entry->context;
    ga_memory_pending_add_bytes(root, pool, entry->bytes, entry->tag, at);
}

void ga_memory_pending_add_plain(struct ga_root *root, const struct ga_entry *entry,
                                 const struct ga_memory_at *at) {
    struct ga_memory_pool *pool =
        ga_memory_pool_of_kind(root, at->driver, entry->device, GA_MEMORY_POOL_NONE);
    struct ga_memory_frees *f = NULL;
    struct ga_memory_pools *p = pool ? ga_memory_frees_begin(root, pool, at, &f) : NULL;
    if (pool)
        ga_memory_pool_refresh(root, pool);
    if (!f || entry->tag != pool->tag) {
        if (p)
            ga_memory_pools_end(p);
        ga_release_entry(root, entry);
        return;
    }
    pool->charge += entry->bytes;
    ga_inflight_add(entry->device, 0 - entry->bytes);
    add_and_end(root, p, f, at, entry->bytes);
}

// Clearing

// Clears a record, because its frees up to turn have executed. Leaves a record alone to which bytes
// were added after turn; this may be a record that another stream uses by now. The caller has
// locked the pools.
static void clear_locked(struct ga_root *root, struct ga_memory_frees *f, uint64_t turn) {
    if (!ga_memory_frees_pending(f) || f->turn > turn)
        return;
    f->pool->freed -= f->bytes;
    ga_memory_pool_count(root, f->pool);
    f->bytes = 0;
}

static void clear(struct ga_root *root, struct ga_memory_frees *f, uint64_t turn) {
    struct ga_memory_pools *p = ga_memory_pools_begin(root);
    clear_locked(root, f, turn);
    ga_memory_pools_end(p);
}

// Copies a record. False: nothing is pending in it, or its pool is not on device (−1: any).
static bool copy_pending(struct ga_memory_pools *p, const struct ga_memory_frees *f, int device,
                         struct ga_memory_frees *copy) {
    ga_self_lock(&p->lock);
    bool pending = ga_memory_frees_pending(f) && (device < 0 || f->pool->device == device);
    if (pending)
        *copy = (struct ga_memory_frees){.at = f->at, .turn = f->turn, .watched = f->watched};
    ga_self_unlock(&p->lock);
    return pending;
}

// Returns the record after f in the list; f NULL: the first. NULL: there are no more.
static struct ga_memory_frees *next_of(struct ga_memory_pools *p, const struct ga_memory_frees *f) {
    ga_self_lock(&p->lock);
    struct ga_memory_frees *next = f ? f->next : p->freed;
    ga_self_unlock(&p->lock);
    return next;
}

// Asks the driver about the streams with pending frees of a device (−1: any), and clears the
// records of streams that have executed them. The caller holds `asking`.
static void ask_streams(struct ga_root *root, int device) {
    struct ga_memory_pools *p = &ga_memory_of(root)->pools;
    struct ga_memory_frees copy;
    for (struct ga_memory_frees *f = next_of(p, NULL); f; f = next_of(p, f)) {
        if (!copy_pending(p, f, device, &copy))
            continue;
        bool passed =
            copy.watched ? atomic_load(&f->passed) != 0 : copy.at.driver->passed(root, &copy.at);
        if (passed)
            clear(root, f, copy.turn);
    }
}

// Longest wait, in ms, for another thread that asks the driver. A thread that wants bytes from
// pools waits for the other thread's trimming (TRIM_MS), which may give enough; if not, it trims
// pools itself. A thread that only asks streams (wanted 0) gives up soon (ASK_MS).
#define ASK_MS 100
#define TRIM_MS 10000

uint64_t ga_memory_pending_reap(struct ga_root *root, uint32_t device, uint64_t wanted) {
    if (!ga_mutex_lock(&ga_memory_of(root)->asking, wanted ? TRIM_MS : ASK_MS))
        return 0;
    ask_streams(root, (int)device);
    uint64_t returned = ga_memory_pool_reap(root, (int)device, wanted);
    ga_mutex_unlock(&ga_memory_of(root)->asking);
    return returned;
}

// Reports whether a record is of a stream in the context that `at` names.
static bool is_in(const struct ga_memory_frees *f, const struct ga_memory_at *at) {
    return (at->context && f->at.context == at->context) ||
           (at->handle && f->at.handle == at->handle && f->at.driver == at->driver);
}

// Clears the records of a stream (at->stream NULL: of a context) up to a turn.
static void clear_all(struct ga_root *root, const struct ga_memory_at *at, uint64_t turn) {
    struct ga_memory_pools *p = ga_memory_pools_begin(root);
    for (struct ga_memory_frees *f = p->freed; f; f = f->next)
        if (at->stream ? ga_memory_frees_at(f, at) : is_in(f, at))
            clear_locked(root, f, turn);
    ga_memory_pools_end(p);
}

// Synchronisations

bool ga_memory_pending_any(struct ga_root *root) {
    return atomic_load_explicit(&ga_memory_of(root)->pools.in_use, memory_order_relaxed);
}

uint64_t ga_memory_pending_turn(struct ga_root *root) {
    struct ga_memory_pools *p = &ga_memory_of(root)->pools;
    ga_self_lock(&p->lock);
    uint64_t turn = p->frees;
    ga_self_unlock(&p->lock);
    return turn;
}

void ga_memory_pending_synchronized(struct ga_root *root, const struct ga_memory_at *at,
                                    uint64_t turn) {
    if (!ga_mutex_lock(&ga_memory_of(root)->asking, ASK_MS))
        return;
    if (at)
        clear_all(root, at, turn);
    else
        ask_streams(root, -1);
    ga_memory_pool_reap(root, -1, 0);
    ga_mutex_unlock(&ga_memory_of(root)->asking);
}

// Destruction of streams and contexts

void ga_memory_pending_pause(struct ga_root *root) {
    if (ga_mutex_lock(&ga_memory_of(root)->asking, 5000))
        ga_mutex_unlock(&ga_memory_of(root)->asking);
}

// Notes that a destroyed stream has executed all its work. The driver calls it, in a thread of its
// own. The record is never freed, and no other stream uses it before this has run.
static void note_executed(void *record) {
    struct ga_memory_frees *f = record;
    atomic_store(&f->passed, 1);
}

// Removes the stream's handle from a record with pending frees, and marks the record as watched.
// False: the record is of another stream, or has nothing pending; either may have changed since the
// caller copied it.
static bool detach(struct ga_root *root, struct ga_memory_frees *f, void *stream) {
    ga_self_lock(&ga_memory_of(root)->pools.lock);
    bool is_its = f->at.stream == stream && ga_memory_frees_pending(f);
    if (is_its) {
        f->at.stream = NULL;
        f->watched = true;
        atomic_store(&f->passed, 0);
    }
    ga_self_unlock(&ga_memory_of(root)->pools.lock);
    return is_its;
}

// Prepares a record for the end of its stream, about which the driver must not be asked afterwards.
// If the frees have not executed yet, makes the driver call note_executed after the stream's work.
static void detach_record(struct ga_root *root, struct ga_memory_frees *f, void *stream) {
    struct ga_memory_frees copy;
    if (!copy_pending(&ga_memory_of(root)->pools, f, -1, &copy) || copy.at.stream != stream)
        return;
    if (copy.at.driver->passed(root, &copy.at))
        clear(root, f, copy.turn);
    if (!detach(root, f, stream))
        return;
    if (copy.at.driver->call_after(stream, note_executed, f))
        return;
    ga_self_lock(&ga_memory_of(root)->pools.lock);
    f->watched = false; // a synchronisation with the context, or its end, clears the record
    ga_self_unlock(&ga_memory_of(root)->pools.lock);
}

void ga_memory_pending_detach_stream(struct ga_root *root, void *stream) {
    struct ga_memory_pools *p = &ga_memory_of(root)->pools;
    if (!stream || !ga_memory_pending_any(root))
        return;
    bool held = ga_mutex_lock(&ga_memory_of(root)->asking, 5000);
    for (struct ga_memory_frees *f = next_of(p, NULL); f; f = next_of(p, f))
        detach_record(root, f, stream);
    ga_memory_pool_reap(root, -1, 0);
    if (held)
        ga_mutex_unlock(&ga_memory_of(root)->asking);
}

void ga_memory_pending_sweep(struct ga_root *root, uint64_t serial) {
    struct ga_memory_at at = {.context = serial};
    if (!ga_memory_pending_any(root))
        return;
    bool held = ga_mutex_lock(&ga_memory_of(root)->asking, 5000);
    clear_all(root, &at, UINT64_MAX);
    ga_memory_pool_reap(root, -1, 0);
    if (held)
        ga_mutex_unlock(&ga_memory_of(root)->asking);
}
