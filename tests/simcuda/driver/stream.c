// SPDX-License-Identifier: Apache-2.0
//
// The stream functions that programs call. queue.c has the queues that run the work of streams.

#include "driver.h"

#include <stdlib.h>

enum { PRIORITY_GREATEST = -5 };

static const struct sim_delta one = {.streams = 1};

CUresult stream_create(struct context *ctx, CUstream *out, unsigned flags, int priority,
                       CUgreenCtx green) {
    if (!out || (flags & ~1u))
        return CUDA_ERROR_INVALID_VALUE;
    priority = priority > 0 ? 0 : priority < PRIORITY_GREATEST ? PRIORITY_GREATEST : priority;
    if (!sim_take(drv.sim, drv.me, ctx->phys, one))
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct stream *s = queue_new(ctx, flags, priority, true);
    if (!s) {
        sim_give(drv.sim, drv.me, ctx->phys, one);
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    s->green = green;
    *out = s->handle;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamCreate(CUstream *out, unsigned flags) {
    ENTER_CTX(ctx);
    return stream_create(ctx, out, flags, 0, 0);
}

EXPORT CUresult cuStreamCreateWithPriority(CUstream *out, unsigned flags, int priority) {
    ENTER_CTX(ctx);
    return stream_create(ctx, out, flags, priority, 0);
}

static CUresult destroy(CUstream handle) {
    pthread_mutex_lock(&drv.lock);
    struct stream *s = handle_get(HANDLE_STREAM, handle);
    bool known = s && s->counted;
    int phys = 0;
    if (known) {
        phys = s->ctx->phys;
        handle_drop(HANDLE_STREAM, handle);
        capture_abandon(s);
        // The stream is ended under the lock of the handles, so that no thread finds it afterwards.
        queue_destroy(s);
    }
    pthread_mutex_unlock(&drv.lock);
    if (!known)
        return CUDA_ERROR_INVALID_HANDLE;
    sim_give(drv.sim, drv.me, phys, one);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamDestroy(CUstream s) {
    ENTER();
    return destroy(s);
}

EXPORT CUresult cuStreamDestroy_v2(CUstream s) {
    ENTER();
    return destroy(s);
}

static CUresult synchronize(struct context *ctx, CUstream handle) {
    struct stream *s;
    CUresult rc = queue_find(ctx, handle, &s);
    if (rc)
        return rc;
    if (capture_is_on(s)) {
        rc = capture_refuse(s);
        queue_unref(s);
        return rc;
    }
    if ((rc = capture_implicit(s))) {
        queue_unref(s);
        return rc;
    }
    queue_sync(s->ctx, s);
    int phys = s->ctx->phys;
    queue_unref(s);
    pool_sync_point(phys);
    return dev_lost(phys);
}

static CUresult query(struct context *ctx, CUstream handle) {
    struct stream *s;
    CUresult rc = queue_find(ctx, handle, &s);
    if (rc)
        return rc;
    if (capture_is_on(s))
        rc = capture_refuse(s);
    else if (!(rc = capture_implicit(s)))
        rc = queue_idle(s->ctx, s) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
    queue_unref(s);
    return rc;
}

BOTH(cuStreamSynchronize, _ptsz, (CUstream hStream), synchronize(ctx, s))
BOTH(cuStreamQuery, _ptsz, (CUstream hStream), query(ctx, s))

typedef void (*stream_callback)(CUstream, CUresult, void *);
typedef void (*host_fn)(void *);

struct callback {
    stream_callback callback;
    host_fn fn;
    CUstream stream;
    void *data;
};

static void run_callback(void *arg) {
    struct callback *c = arg;
    drv_in_callback++;
    if (c->callback)
        c->callback(c->stream, CUDA_SUCCESS, c->data);
    else
        c->fn(c->data);
    drv_in_callback--;
}

static CUresult add_callback(struct context *ctx, CUstream s, CUstream named, stream_callback cb,
                             void *data, unsigned flags) {
    if (!cb || flags)
        return CUDA_ERROR_INVALID_VALUE;
    struct callback c = {.callback = cb, .stream = named, .data = data};
    return queue_run(ctx, s, run_callback, &c, sizeof c, false);
}

static CUresult launch_host(struct context *ctx, CUstream s, host_fn fn, void *data) {
    if (!fn)
        return CUDA_ERROR_INVALID_VALUE;
    struct callback c = {.fn = fn, .data = data};
    return queue_run(ctx, s, run_callback, &c, sizeof c, false);
}

BOTH(cuStreamAddCallback, _ptsz,
     (CUstream hStream, stream_callback callback, void *data, unsigned flags),
     add_callback(ctx, s, hStream, callback, data, flags))
BOTH(cuLaunchHostFunc, _ptsz, (CUstream hStream, host_fn fn, void *data),
     launch_host(ctx, s, fn, data))

enum stream_fact { FACT_FLAGS, FACT_PRIORITY, FACT_ID, FACT_CONTEXT };

static CUresult fact(struct context *ctx, CUstream handle, enum stream_fact which, void *out) {
    struct stream *s;
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult rc = queue_find(ctx, handle, &s);
    if (rc)
        return rc;
    switch (which) {
    case FACT_FLAGS:
        *(unsigned *)out = s->flags;
        break;
    case FACT_PRIORITY:
        *(int *)out = s->priority;
        break;
    case FACT_ID:
        *(unsigned long long *)out = s->legacy ? s->ctx->id : s->id;
        break;
    case FACT_CONTEXT:
        *(CUcontext *)out = s->ctx->handle;
        break;
    }
    queue_unref(s);
    return CUDA_SUCCESS;
}

BOTH(cuStreamGetFlags, _ptsz, (CUstream hStream, unsigned *flags), fact(ctx, s, FACT_FLAGS, flags))
BOTH(cuStreamGetPriority, _ptsz, (CUstream hStream, int *p), fact(ctx, s, FACT_PRIORITY, p))
BOTH(cuStreamGetId, _ptsz, (CUstream hStream, unsigned long long *id), fact(ctx, s, FACT_ID, id))
BOTH(cuStreamGetCtx, _ptsz, (CUstream hStream, CUcontext *c), fact(ctx, s, FACT_CONTEXT, c))
