// SPDX-License-Identifier: Apache-2.0
//
// Stream capture: during a capture, operations of a stream become a graph, and are not executed. A
// stream that waits for an event of a captured stream joins the capture. A call that is forbidden
// in captures invalidates it.

#include "driver.h"

#include <stdlib.h>

enum capture_error {
    ERROR_UNSUPPORTED = 900,
    ERROR_INVALIDATED,
    ERROR_MERGE,
    ERROR_UNMATCHED,
    ERROR_UNJOINED,
    ERROR_ISOLATION,
    ERROR_IMPLICIT,
    ERROR_CAPTURED_EVENT,
    ERROR_WRONG_THREAD,
};

enum capture_mode { MODE_GLOBAL, MODE_THREAD_LOCAL, MODE_RELAXED };

struct capture {
    uint64_t id;
    struct graph *graph;
    bool given; // the program owns the graph, and keeps it if the capture fails
    struct stream *origin;
    enum capture_mode mode;
    uintptr_t thread;
    bool invalid;
    unsigned members; // number of streams in the capture
    struct capture *next;
};

static struct capture *captures;       // under drv.lock
static _Atomic uint32_t capture_count; // number of captures; if it is 0, no lock is needed
static _Thread_local int thread_mode;  // cuThreadExchangeStreamCaptureMode
static _Thread_local char thread_mark;

static uintptr_t this_thread(void) {
    return (uintptr_t)&thread_mark;
}

static bool none(void) {
    return atomic_load_explicit(&capture_count, memory_order_acquire) == 0;
}

static void unlist(struct capture *c) {
    for (struct capture **q = &captures; *q; q = &(*q)->next)
        if (*q == c) {
            *q = c->next;
            atomic_fetch_sub(&capture_count, 1);
            return;
        }
}

static void drop_graph(struct capture *c) {
    if (!c->given)
        graph_drop(c->graph);
}

static void leave(struct stream *s, struct capture *c) {
    atomic_store(&s->capture, NULL);
    c->members--;
    queue_unref(s);
}

// Invalidates the capture of a stream that is destroyed. If it is the origin stream, the capture
// cannot be ended any more.
void capture_abandon(struct stream *s) {
    struct capture *c = atomic_load(&s->capture);
    if (!c)
        return;
    c->invalid = true;
    if (c->origin == s)
        unlist(c);
    leave(s, c);
    if (!c->members) {
        unlist(c);
        drop_graph(c);
        free(c);
    }
}

bool capture_is_on(struct stream *s) {
    return atomic_load(&s->capture) != NULL;
}

CUresult capture_refuse_locked(struct stream *s) {
    struct capture *c = atomic_load(&s->capture);
    if (c && c->invalid)
        return ERROR_INVALIDATED;
    if (c)
        c->invalid = true;
    return ERROR_UNSUPPORTED;
}

CUresult capture_refuse(struct stream *s) {
    pthread_mutex_lock(&drv.lock);
    CUresult rc = capture_refuse_locked(s);
    pthread_mutex_unlock(&drv.lock);
    return rc;
}

// Refuses calls that may synchronise: in a thread that captures, and in all threads while one
// thread captures in global mode. A thread in relaxed mode is not refused.
CUresult capture_unsafe(void) {
    if (none() || thread_mode == MODE_RELAXED)
        return CUDA_SUCCESS;
    CUresult rc = CUDA_SUCCESS;
    pthread_mutex_lock(&drv.lock);
    for (struct capture *c = captures; c; c = c->next) {
        bool mine = c->thread == this_thread() && c->mode != MODE_RELAXED;
        bool all = c->mode == MODE_GLOBAL && thread_mode == MODE_GLOBAL;
        if (mine || all) {
            c->invalid = true;
            rc = ERROR_UNSUPPORTED;
        }
    }
    pthread_mutex_unlock(&drv.lock);
    return rc;
}

static CUresult implicit(struct stream *s, bool spoil) {
    CUresult rc = CUDA_SUCCESS;
    if (none() || !s->legacy)
        return rc;
    for (struct capture *c = captures; c; c = c->next)
        if (c->origin->ctx == s->ctx && !(c->origin->flags & CU_STREAM_NON_BLOCKING)) {
            c->invalid = c->invalid || spoil;
            rc = ERROR_IMPLICIT;
        }
    return rc;
}

CUresult capture_implicit_locked(struct stream *s) {
    return implicit(s, true);
}

CUresult capture_implicit(struct stream *s) {
    if (none() || !s->legacy)
        return CUDA_SUCCESS;
    pthread_mutex_lock(&drv.lock);
    CUresult rc = capture_implicit_locked(s);
    pthread_mutex_unlock(&drv.lock);
    return rc;
}

CUresult capture_graph(struct stream *s, struct graph **out) {
    struct capture *c = atomic_load(&s->capture);
    if (!c || c->invalid)
        return ERROR_INVALIDATED;
    s->capture_nodes++;
    s->capture_joined = s == c->origin;
    *out = c->graph;
    return CUDA_SUCCESS;
}

CUresult capture_mark(struct stream *s, struct capture_point *out) {
    struct capture *c = atomic_load(&s->capture);
    if (!c || c->invalid)
        return ERROR_INVALIDATED;
    *out = (struct capture_point){c->id, s, s->capture_nodes};
    return CUDA_SUCCESS;
}

static struct capture *by_id(uint64_t id) {
    struct capture *c = captures;
    while (c && c->id != id)
        c = c->next;
    return c;
}

bool capture_lives(const struct capture_point *p) {
    return p->id && !none() && by_id(p->id) != NULL;
}

CUresult capture_join(struct stream *s, const struct capture_point *from) {
    struct capture *c = by_id(from->id), *own = atomic_load(&s->capture);
    if (c->invalid)
        return ERROR_INVALIDATED;
    if (c->origin->ctx != s->ctx)
        return CUDA_ERROR_NOT_SUPPORTED; // a capture over several devices
    if (s->legacy) {
        c->invalid = true;
        return ERROR_IMPLICIT;
    }
    if (own && own != c) {
        c->invalid = own->invalid = true;
        return ERROR_MERGE;
    }
    if (!own) {
        atomic_store(&s->capture, c);
        c->members++;
        queue_ref(s);
        s->capture_nodes = 0;
        s->capture_joined = false;
    }
    if (from->stream != s && from->stream->capture_nodes == from->nodes)
        from->stream->capture_joined = true;
    return CUDA_SUCCESS;
}

// Begins a capture into an existing graph, or into a new one.
static CUresult begin_in(struct context *ctx, CUstream handle, int mode, uintptr_t into) {
    struct stream *s;
    if (mode < MODE_GLOBAL || mode > MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult rc = queue_find(ctx, handle, &s);
    if (rc)
        return rc;
    struct capture *c = calloc(1, sizeof *c);
    pthread_mutex_lock(&drv.lock);
    struct graph *given = into ? handle_get(HANDLE_GRAPH, into) : NULL;
    if (s->legacy || capture_is_on(s) || (into && !given)) {
        rc = s->legacy ? ERROR_UNSUPPORTED : CUDA_ERROR_INVALID_VALUE;
    } else if (!c || !(c->graph = given ? given : graph_new())) {
        rc = CUDA_ERROR_OUT_OF_MEMORY;
    } else {
        c->given = given != NULL;
        c->id = ++drv.next_id;
        c->members = 1;
        c->origin = s;
        c->mode = (enum capture_mode)mode;
        c->thread = this_thread();
        c->next = captures;
        captures = c;
        atomic_fetch_add(&capture_count, 1);
        s->capture_nodes = 0;
        s->capture_joined = true;
        queue_ref(s);
        atomic_store(&s->capture, c);
        c = NULL;
    }
    pthread_mutex_unlock(&drv.lock);
    free(c);
    queue_unref(s);
    return rc;
}

static CUresult begin(struct context *ctx, CUstream handle, int mode) {
    return begin_in(ctx, handle, mode, 0);
}

// Begins a capture into a graph. The dependencies of the first node are not kept, because all nodes
// run in the order of addition.
static CUresult begin_to(struct context *ctx, CUstream handle, uintptr_t graph,
                         const uintptr_t *deps, const void *edges, size_t count, int mode) {
    if (!graph || (count && !deps))
        return CUDA_ERROR_INVALID_VALUE;
    if (edges)
        return CUDA_ERROR_NOT_SUPPORTED;
    pthread_mutex_lock(&drv.lock);
    bool known = true;
    for (size_t i = 0; i < count; i++)
        known = known && handle_get(HANDLE_NODE, deps[i]);
    pthread_mutex_unlock(&drv.lock);
    return known ? begin_in(ctx, handle, mode, graph) : CUDA_ERROR_INVALID_VALUE;
}

BOTH(cuStreamBeginCapture, _ptsz, (CUstream hStream), begin(ctx, s, MODE_GLOBAL))
BOTH(cuStreamBeginCapture_v2, _ptsz, (CUstream hStream, int mode), begin(ctx, s, mode))
BOTH(cuStreamBeginCaptureToGraph, _ptsz,
     (CUstream hStream, uintptr_t graph, const uintptr_t *deps, const void *edges, size_t count,
      int mode),
     begin_to(ctx, s, graph, deps, edges, count, mode))

struct ending {
    struct capture *capture;
    bool joined;
};

static void leave_capture(struct stream *s, void *arg) {
    struct ending *e = arg;
    if (atomic_load(&s->capture) != e->capture)
        return;
    e->joined = e->joined && s->capture_joined;
    leave(s, e->capture);
}

static CUresult end_locked(struct stream *s, struct graph **graph) {
    struct capture *c = atomic_load(&s->capture);
    if (!c)
        return CUDA_ERROR_INVALID_VALUE;
    if (c->origin != s)
        return ERROR_UNMATCHED;
    if (c->mode != MODE_RELAXED && c->thread != this_thread())
        return ERROR_WRONG_THREAD;
    struct ending e = {c, true};
    queue_each(s->ctx, leave_capture, &e);
    unlist(c);
    CUresult rc = c->invalid ? ERROR_INVALIDATED : e.joined ? CUDA_SUCCESS : ERROR_UNJOINED;
    if (rc)
        drop_graph(c);
    else
        *graph = c->graph;
    free(c); // all its streams are in this context, and have left it
    return rc;
}

static CUresult end(struct context *ctx, CUstream handle, uintptr_t *out) {
    struct stream *s;
    struct graph *g = NULL;
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult rc = queue_find(ctx, handle, &s);
    if (rc)
        return rc;
    pthread_mutex_lock(&drv.lock);
    rc = end_locked(s, &g);
    *out = g ? graph_handle(g) : 0;
    pthread_mutex_unlock(&drv.lock);
    queue_unref(s);
    return rc;
}

BOTH(cuStreamEndCapture, _ptsz, (CUstream hStream, uintptr_t *graph), end(ctx, s, graph))

// Answers the three forms of cuStreamGetCaptureInfo, which differ in what they return besides the
// status.
static CUresult info(struct context *ctx, CUstream handle, int *status, unsigned long long *id,
                     uintptr_t *graph) {
    struct stream *s;
    if (!status)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult rc = queue_find(ctx, handle, &s);
    if (rc)
        return rc;
    pthread_mutex_lock(&drv.lock);
    struct capture *c = atomic_load(&s->capture);
    *status = c ? c->invalid ? 2 : 1 : 0;
    if (c && id)
        *id = c->id;
    if (c && graph)
        *graph = graph_handle(c->graph);
    rc = implicit(s, false); // a query does not invalidate the capture
    pthread_mutex_unlock(&drv.lock);
    queue_unref(s);
    return rc;
}

// The nodes that the next node would depend on are not kept: the call returns 801.
static CUresult info_deps(struct context *ctx, CUstream handle, int *status, unsigned long long *id,
                          uintptr_t *graph, const void *deps, const void *count) {
    CUresult rc = info(ctx, handle, status, id, graph);
    return !rc && *status && (deps || count) ? CUDA_ERROR_NOT_SUPPORTED : rc;
}

BOTH(cuStreamIsCapturing, _ptsz, (CUstream hStream, int *status), info(ctx, s, status, NULL, NULL))
BOTH(cuStreamGetCaptureInfo, _ptsz, (CUstream hStream, int *status, unsigned long long *id),
     info(ctx, s, status, id, NULL))
BOTH(cuStreamGetCaptureInfo_v2, _ptsz,
     (CUstream hStream, int *status, unsigned long long *id, uintptr_t *graph, const void **deps,
      size_t *count),
     info_deps(ctx, s, status, id, graph, deps, count))
BOTH(cuStreamGetCaptureInfo_v3, _ptsz,
     (CUstream hStream, int *status, unsigned long long *id, uintptr_t *graph, const void **deps,
      const void **edges, size_t *count),
     info_deps(ctx, s, status, id, graph, edges ? (const void *)edges : deps, count))

EXPORT CUresult cuThreadExchangeStreamCaptureMode(int *mode) {
    ENTER();
    if (!mode || *mode < MODE_GLOBAL || *mode > MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    int old = thread_mode;
    thread_mode = *mode;
    *mode = old;
    return CUDA_SUCCESS;
}
