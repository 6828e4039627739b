// SPDX-License-Identifier: Apache-2.0
//
// Streams as queues. Operations of a stream run in order, on a thread that the stream gets with its
// first asynchronous work. Each operation can wait for positions in other streams; the legacy
// default stream and cuStreamWaitEvent are made of that.

#include "driver.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { STACK_BYTES = 1 << 20, THREAD_STREAMS = 16 };

struct op {
    struct op *next;
    op_fn fn;
    uint64_t seq;
    size_t dep_count;
    struct stream_dep *deps;
    _Alignas(16) char arg[];
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t progress; // signalled when an operation has completed
} strm = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER};

// The default streams of the calling thread, one for each context.
static _Thread_local struct {
    struct stream *stream[THREAD_STREAMS];
    unsigned next;
} mine;

void queue_ref(struct stream *s) {
    atomic_fetch_add(&s->refs, 1);
}

void queue_unref(struct stream *s) {
    if (atomic_fetch_sub(&s->refs, 1) != 1)
        return;
    pthread_cond_destroy(&s->work);
    free(s);
}

static struct stream *new_stream(struct context *ctx, unsigned flags, int priority) {
    struct stream *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->ctx = ctx;
    s->flags = flags;
    s->priority = priority;
    s->tail = &s->head;
    atomic_init(&s->refs, 1);
    pthread_cond_init(&s->work, NULL);
    return s;
}

struct stream *queue_new(struct context *ctx, unsigned flags, int priority, bool counted) {
    struct stream *s = new_stream(ctx, flags, priority);
    if (!s)
        return NULL;
    s->counted = counted;
    pthread_mutex_lock(&drv.lock);
    bool lives = ctx_lives(ctx);
    if (lives) {
        s->id = ++drv.next_id;
        s->handle = handle_new(HANDLE_STREAM, s);
        pthread_mutex_lock(&strm.lock);
        s->next = ctx->streams;
        ctx->streams = s;
        pthread_mutex_unlock(&strm.lock);
    }
    pthread_mutex_unlock(&drv.lock);
    if (lives)
        return s;
    pthread_cond_destroy(&s->work);
    free(s);
    return NULL;
}

void queue_attach_context(struct context *ctx) {
    ctx->legacy = new_stream(ctx, 0, 0);
    ctx->legacy->legacy = true;
    ctx->legacy->handle = CU_STREAM_LEGACY;
    queue_ref(ctx->legacy); // kept as long as the context's struct, which is never freed
}

static void unlink_locked(struct stream *s) {
    for (struct stream **p = &s->ctx->streams; *p; p = &(*p)->next)
        if (*p == s) {
            *p = s->next;
            return;
        }
}

// Ends a stream when its queue is empty. The owner's reference ends with the stream's thread.
static void end_locked(struct stream *s) {
    if (s->dead)
        return;
    s->dead = true;
    if (s->running) {
        pthread_cond_signal(&s->work);
    } else {
        unlink_locked(s);
        queue_unref(s);
    }
}

// Calls act for each stream of a context, including destroyed streams that still work. act may drop
// a reference that it has.
void queue_each(struct context *ctx, void (*act)(struct stream *, void *), void *arg) {
    pthread_mutex_lock(&strm.lock);
    for (struct stream *s = ctx->streams, *next; s; s = next) {
        next = s->next;
        act(s, arg);
    }
    pthread_mutex_unlock(&strm.lock);
}

void queue_destroy(struct stream *s) {
    pthread_mutex_lock(&strm.lock);
    end_locked(s);
    pthread_mutex_unlock(&strm.lock);
}

void queue_detach_context(struct context *ctx) {
    uint32_t counted = 0;
    pthread_mutex_lock(&strm.lock);
    for (struct stream *s = ctx->streams, *next; s; s = next) {
        next = s->next;
        if (!s->dead) {
            handle_drop(HANDLE_STREAM, s->handle);
            capture_abandon(s);
            counted += s->counted;
        }
        end_locked(s);
    }
    end_locked(ctx->legacy);
    pthread_mutex_unlock(&strm.lock);
    sim_give(drv.sim, drv.me, ctx->phys, (struct sim_delta){.streams = (int32_t)counted});
}

static void complete_locked(struct stream *s, struct op *op) {
    s->head = op->next;
    if (!s->head)
        s->tail = &s->head;
    s->completed = op->seq;
    atomic_fetch_sub_explicit(&s->ctx->pending, 1, memory_order_release);
    pthread_cond_broadcast(&strm.progress);
    for (size_t i = 0; i < op->dep_count; i++)
        queue_unref(op->deps[i].on);
    free(op->deps);
    free(op);
}

static void delay(uint64_t ns) {
    if (!ns)
        return;
    struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    while (nanosleep(&t, &t) != 0)
        ;
}

static void *worker(void *arg) {
    struct stream *s = arg;
    pthread_mutex_lock(&strm.lock);
    for (;;) {
        while (!s->head && !s->dead)
            pthread_cond_wait(&s->work, &strm.lock);
        struct op *op = s->head;
        if (!op)
            break;
        for (size_t i = 0; i < op->dep_count; i++)
            while (op->deps[i].on->completed < op->deps[i].seq)
                pthread_cond_wait(&strm.progress, &strm.lock);
        pthread_mutex_unlock(&strm.lock);
        delay(drv.sim->config.stream_delay_ns);
        if (op->fn)
            op->fn(op->arg);
        pthread_mutex_lock(&strm.lock);
        complete_locked(s, op);
    }
    s->running = false;
    unlink_locked(s);
    pthread_mutex_unlock(&strm.lock);
    queue_unref(s);
    return NULL;
}

// Keeps the library loaded, because stream threads run its code.
static void pin_library(void) {
    Dl_info info;
    if (dladdr((void *)(uintptr_t)&worker, &info) && info.dli_fname)
        dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

// Starts a thread, in which all signals are blocked: the program's signals are for its own threads.
static bool start_thread_locked(struct stream *s) {
    static pthread_once_t pinned = PTHREAD_ONCE_INIT;
    pthread_once(&pinned, pin_library);
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    pthread_t t;
    s->running = pthread_create(&t, &attr, worker, s) == 0;
    pthread_attr_destroy(&attr);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return s->running;
}

static bool blocking(const struct stream *s) {
    return !s->legacy && !(s->flags & CU_STREAM_NON_BLOCKING);
}

static void add_dep(struct op *op, struct stream *on, uint64_t seq) {
    if (on->completed >= seq)
        return;
    queue_ref(on);
    op->deps = realloc(op->deps, (op->dep_count + 1) * sizeof *op->deps);
    op->deps[op->dep_count++] = (struct stream_dep){on, seq};
}

// The legacy stream and the blocking ones wait for each other's earlier work.
static void add_implicit_deps(struct op *op, struct stream *s) {
    if (s->legacy) {
        for (struct stream *o = s->ctx->streams; o; o = o->next)
            if (blocking(o))
                add_dep(op, o, o->submitted);
    } else if (blocking(s)) {
        add_dep(op, s->ctx->legacy, s->ctx->legacy->submitted);
    }
}

CUresult queue_add(struct stream *s, op_fn fn, const void *arg, size_t size,
                   const struct stream_dep *after, uint64_t *seq) {
    enum { ERROR_OPERATING_SYSTEM = 304 };
    struct op *op = calloc(1, sizeof *op + size);
    if (!op)
        return CUDA_ERROR_OUT_OF_MEMORY;
    op->fn = fn;
    if (size)
        memcpy(op->arg, arg, size);
    pthread_mutex_lock(&strm.lock);
    if (s->dead || (!s->running && !start_thread_locked(s))) {
        CUresult rc = s->dead ? CUDA_ERROR_INVALID_HANDLE : ERROR_OPERATING_SYSTEM;
        pthread_mutex_unlock(&strm.lock);
        free(op);
        return rc;
    }
    add_implicit_deps(op, s);
    if (after && after->on != s)
        add_dep(op, after->on, after->seq);
    op->seq = ++s->submitted;
    if (seq)
        *seq = op->seq;
    atomic_fetch_add_explicit(&s->ctx->pending, 1, memory_order_relaxed);
    *s->tail = op;
    s->tail = &op->next;
    pthread_mutex_unlock(&strm.lock);
    return CUDA_SUCCESS;
}

void queue_kick(struct stream *s) {
    pthread_cond_signal(&s->work);
}

CUresult queue_put(struct stream *s, op_fn fn, const void *arg, size_t size,
                   const struct stream_dep *after, uint64_t *seq) {
    CUresult rc = queue_add(s, fn, arg, size, after, seq);
    if (!rc)
        queue_kick(s);
    return rc;
}

static struct stream *thread_stream(struct context *ctx) {
    for (unsigned i = 0; i < THREAD_STREAMS; i++)
        if (mine.stream[i] && mine.stream[i]->ctx == ctx && !mine.stream[i]->dead)
            return mine.stream[i];
    struct stream **place = &mine.stream[mine.next++ % THREAD_STREAMS];
    struct stream *s = queue_new(ctx, 0, 0, false);
    if (!s)
        return NULL;
    queue_ref(s);
    if (*place)
        queue_unref(*place);
    return *place = s;
}

CUresult queue_find(struct context *ctx, CUstream handle, struct stream **out) {
    struct stream *s;
    if (handle == CU_STREAM_LEGACY || !handle) {
        s = ctx->legacy;
    } else if (handle == CU_STREAM_PER_THREAD) {
        if (!(s = thread_stream(ctx)))
            return CUDA_ERROR_OUT_OF_MEMORY;
    } else {
        pthread_mutex_lock(&drv.lock);
        s = handle_get(HANDLE_STREAM, handle);
        bool detached = s && s->detached;
        if (s && !detached)
            queue_ref(s);
        pthread_mutex_unlock(&drv.lock);
        *out = s;
        return detached ? CUDA_ERROR_STREAM_DETACHED : s ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    }
    queue_ref(s);
    *out = s;
    return CUDA_SUCCESS;
}

bool queue_passed(struct stream *s, uint64_t seq) {
    pthread_mutex_lock(&strm.lock);
    bool passed = s->completed >= seq;
    pthread_mutex_unlock(&strm.lock);
    return passed;
}

static void wait_locked(struct stream *s, uint64_t seq) {
    while (s->completed < seq)
        pthread_cond_wait(&strm.progress, &strm.lock);
}

void queue_wait(struct stream *s, uint64_t seq) {
    pthread_mutex_lock(&strm.lock);
    wait_locked(s, seq);
    pthread_mutex_unlock(&strm.lock);
}

// Waits for the operations that are now queued on the streams of a context: on all streams, or on
// those that block the legacy stream.
static void sync_streams(struct context *ctx, bool all) {
    pthread_mutex_lock(&strm.lock);
    size_t n = 1;
    for (struct stream *s = ctx->streams; s; s = s->next)
        n++;
    struct stream_dep *snapshot = calloc(n, sizeof *snapshot);
    n = 0;
    queue_ref(ctx->legacy);
    snapshot[n++] = (struct stream_dep){ctx->legacy, ctx->legacy->submitted};
    for (struct stream *s = ctx->streams; s; s = s->next)
        if (all || blocking(s)) {
            queue_ref(s);
            snapshot[n++] = (struct stream_dep){s, s->submitted};
        }
    for (size_t i = 0; i < n; i++) {
        wait_locked(snapshot[i].on, snapshot[i].seq);
        queue_unref(snapshot[i].on);
    }
    pthread_mutex_unlock(&strm.lock);
    free(snapshot);
}

void queue_sync_context(struct context *ctx) {
    if (!queue_context_idle(ctx))
        sync_streams(ctx, true);
}

void queue_sync(struct context *ctx, struct stream *s) {
    if (s->legacy) {
        if (!queue_context_idle(ctx))
            sync_streams(ctx, false);
        return;
    }
    pthread_mutex_lock(&strm.lock);
    wait_locked(s, s->submitted);
    pthread_mutex_unlock(&strm.lock);
}

bool queue_idle(struct context *ctx, struct stream *s) {
    pthread_mutex_lock(&strm.lock);
    bool idle = s->completed == s->submitted;
    if (s->legacy)
        for (struct stream *o = ctx->streams; o && idle; o = o->next)
            idle = !blocking(o) || o->completed == o->submitted;
    pthread_mutex_unlock(&strm.lock);
    return idle;
}

CUresult queue_run(struct context *ctx, CUstream handle, op_fn fn, const void *arg, size_t size,
                   bool wait) {
    struct stream *s;
    CUresult rc = queue_find(ctx, handle, &s);
    if (rc)
        return rc;
    if (capture_is_on(s)) {
        struct graph *g;
        pthread_mutex_lock(&drv.lock);
        if (!(rc = capture_graph(s, &g)))
            rc = graph_add_run(g, fn, arg, size);
        pthread_mutex_unlock(&drv.lock);
        queue_unref(s);
        return rc;
    }
    if ((rc = capture_implicit(s))) {
        queue_unref(s);
        return rc;
    }
    uint64_t seq = 0;
    // No other work is queued, so the calling thread can run the operation itself.
    if (wait && queue_context_idle(ctx) && !drv.sim->config.stream_delay_ns) {
        fn((void *)(uintptr_t)arg);
    } else {
        rc = queue_put(s, fn, arg, size, NULL, &seq);
        if (!rc && wait)
            queue_wait(s, seq);
    }
    queue_unref(s);
    return rc;
}
