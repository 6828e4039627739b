// SPDX-License-Identifier: Apache-2.0
//
// Events: a position in a stream, and the time when the stream passed it.

#include "driver.h"

#include <stdlib.h>

struct event {
    CUevent handle;
    CUcontext ctx;
    int phys;
    unsigned flags;
    _Atomic uint32_t refs;
    _Atomic uint64_t passed_ns;
    struct stream *stream; // guarded by drv.lock; NULL: never recorded
    uint64_t seq;
    struct capture_point captured; // used instead of the two fields above
};

static void unref(struct event *e) {
    if (atomic_fetch_sub(&e->refs, 1) == 1)
        free(e);
}

static struct event *get_locked(CUevent handle) {
    struct event *e = handle_get(HANDLE_EVENT, handle);
    return e && ctx_by_handle(e->ctx) ? e : NULL;
}

EXPORT CUresult cuEventCreate(CUevent *out, unsigned flags) {
    ENTER_CTX(ctx);
    enum { INTERPROCESS = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING };
    if (!out || (flags & ~7u))
        return CUDA_ERROR_INVALID_VALUE;
    if ((flags & CU_EVENT_INTERPROCESS) && (flags & INTERPROCESS) != INTERPROCESS)
        return CUDA_ERROR_INVALID_VALUE;
    struct event *e = calloc(1, sizeof *e);
    if (!e)
        return CUDA_ERROR_OUT_OF_MEMORY;
    e->ctx = ctx->handle;
    e->phys = ctx->phys;
    e->flags = flags;
    atomic_init(&e->refs, 1);
    pthread_mutex_lock(&drv.lock);
    e->handle = handle_new(HANDLE_EVENT, e);
    pthread_mutex_unlock(&drv.lock);
    *out = e->handle;
    return CUDA_SUCCESS;
}

static CUresult destroy(CUevent handle) {
    pthread_mutex_lock(&drv.lock);
    struct event *e = handle_get(HANDLE_EVENT, handle);
    if (e) {
        handle_drop(HANDLE_EVENT, handle);
        if (e->stream)
            queue_unref(e->stream);
        e->stream = NULL;
    }
    pthread_mutex_unlock(&drv.lock);
    if (!e)
        return CUDA_ERROR_INVALID_HANDLE;
    unref(e);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuEventDestroy(CUevent e) {
    ENTER();
    return destroy(e);
}

EXPORT CUresult cuEventDestroy_v2(CUevent e) {
    ENTER();
    return destroy(e);
}

static void pass(void *arg) {
    struct event *e = *(struct event **)arg;
    atomic_store(&e->passed_ns, sim_now_ns());
    unref(e);
}

static CUresult record(struct context *ctx, CUevent handle, CUstream stream) {
    struct stream *s;
    CUresult rc = queue_find(ctx, stream, &s);
    if (rc)
        return rc;
    uint64_t seq = 0;
    pthread_mutex_lock(&drv.lock);
    struct event *e = get_locked(handle);
    if (!e) {
        rc = CUDA_ERROR_INVALID_HANDLE;
    } else if (capture_is_on(s)) {
        rc = capture_mark(s, &e->captured);
    } else if (!(rc = capture_implicit_locked(s))) {
        e->captured.id = 0;
        atomic_fetch_add(&e->refs, 1);
        rc = queue_add(s, pass, &e, sizeof e, NULL, &seq);
        if (rc) {
            unref(e);
        } else {
            if (e->stream)
                queue_unref(e->stream);
            queue_ref(s);
            e->stream = s;
            e->seq = seq;
        }
    }
    pthread_mutex_unlock(&drv.lock);
    queue_kick(s);
    queue_unref(s);
    return rc;
}

static CUresult record_flags(struct context *ctx, CUevent e, CUstream s, unsigned flags) {
    return flags > 1 ? CUDA_ERROR_INVALID_VALUE : record(ctx, e, s);
}

BOTH(cuEventRecord, _ptsz, (CUevent event, CUstream hStream), record(ctx, event, s))
BOTH(cuEventRecordWithFlags, _ptsz, (CUevent event, CUstream hStream, unsigned flags),
     record_flags(ctx, event, s, flags))

// Returns the position of an event, with a reference to its stream. If there is no stream, the
// event was never recorded.
enum { ERROR_CAPTURED_EVENT = 907 };

static CUresult point(CUevent handle, struct stream_dep *out, int *phys) {
    pthread_mutex_lock(&drv.lock);
    struct event *e = get_locked(handle);
    CUresult rc = e ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    if (e && capture_lives(&e->captured)) {
        rc = ERROR_CAPTURED_EVENT;
    } else if (e) {
        *out = (struct stream_dep){e->stream, e->seq};
        *phys = e->phys;
        if (e->stream)
            queue_ref(e->stream);
    }
    pthread_mutex_unlock(&drv.lock);
    return rc;
}

// Reports whether a wait belongs to a capture. A stream joins the capture of the event that it
// waits for.
static bool join_capture(struct stream *s, CUevent handle, CUresult *rc) {
    enum { ERROR_CAPTURE_ISOLATION = 905 };
    bool mine = true;
    pthread_mutex_lock(&drv.lock);
    struct event *e = get_locked(handle);
    if (!e)
        *rc = CUDA_ERROR_INVALID_HANDLE;
    else if (capture_lives(&e->captured))
        *rc = capture_join(s, &e->captured);
    else if (capture_is_on(s))
        *rc = ERROR_CAPTURE_ISOLATION;
    else
        mine = false;
    pthread_mutex_unlock(&drv.lock);
    return mine;
}

static CUresult wait_event(struct context *ctx, CUstream stream, CUevent event, unsigned flags) {
    struct stream_dep p = {NULL, 0};
    struct stream *s;
    int phys = 0;
    if (flags > 1)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult rc = queue_find(ctx, stream, &s);
    if (rc)
        return rc;
    if (join_capture(s, event, &rc)) {
        queue_unref(s);
        return rc;
    }
    rc = point(event, &p, &phys);
    if (!rc && p.on) {
        rc = queue_put(s, NULL, NULL, 0, &p, NULL);
        queue_unref(p.on);
    }
    queue_unref(s);
    return rc;
}

BOTH(cuStreamWaitEvent, _ptsz, (CUstream hStream, CUevent event, unsigned flags),
     wait_event(ctx, s, event, flags))

EXPORT CUresult cuEventQuery(CUevent event) {
    ENTER();
    struct stream_dep p = {NULL, 0};
    int phys = 0;
    CUresult rc = point(event, &p, &phys);
    if (!rc && (rc = capture_unsafe()) && p.on)
        queue_unref(p.on);
    if (rc || !p.on)
        return rc;
    rc = queue_passed(p.on, p.seq) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
    queue_unref(p.on);
    return rc;
}

EXPORT CUresult cuEventSynchronize(CUevent event) {
    ENTER();
    struct stream_dep p = {NULL, 0};
    int phys = 0;
    CUresult rc = point(event, &p, &phys);
    if (!rc && (rc = capture_unsafe()) && p.on)
        queue_unref(p.on);
    if (rc || !p.on)
        return rc;
    queue_wait(p.on, p.seq);
    queue_unref(p.on);
    pool_sync_point(phys);
    return dev_lost(phys);
}

EXPORT CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end) {
    ENTER();
    if (!ms)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&drv.lock);
    struct event *a = get_locked(start), *b = get_locked(end);
    CUresult rc = CUDA_SUCCESS;
    if (!a || !b || !a->stream || !b->stream || ((a->flags | b->flags) & CU_EVENT_DISABLE_TIMING))
        rc = CUDA_ERROR_INVALID_HANDLE;
    else if (!queue_passed(a->stream, a->seq) || !queue_passed(b->stream, b->seq))
        rc = CUDA_ERROR_NOT_READY;
    else
        *ms = (float)((int64_t)(atomic_load(&b->passed_ns) - atomic_load(&a->passed_ns))) / 1e6f;
    pthread_mutex_unlock(&drv.lock);
    return rc;
}
