// SPDX-License-Identifier: Apache-2.0
//
// Queries and small settings of the current context.

#include "driver.h"

EXPORT CUresult cuCtxGetDevice(CUdevice *dev) {
    ENTER_CTX(ctx);
    if (!dev)
        return CUDA_ERROR_INVALID_VALUE;
    *dev = ctx->dev;
    return CUDA_SUCCESS;
}

static CUresult by_handle_or_current(CUcontext handle, struct context **out) {
    if (!handle)
        return ctx_current(out);
    pthread_mutex_lock(&drv.lock);
    *out = ctx_by_handle(handle);
    pthread_mutex_unlock(&drv.lock);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

EXPORT CUresult cuCtxGetApiVersion(CUcontext handle, unsigned *version) {
    ENTER();
    struct context *ctx;
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult rc = by_handle_or_current(handle, &ctx);
    if (!rc)
        *version = ctx->version;
    return rc;
}

enum { LIMITS = 7 };

EXPORT CUresult cuCtxGetLimit(size_t *value, int limit) {
    ENTER_CTX(ctx);
    if (!value || limit < 0 || limit >= LIMITS)
        return CUDA_ERROR_INVALID_VALUE;
    *value = ctx->limits[limit];
    return CUDA_SUCCESS;
}

uint64_t limits_cost(const struct context *ctx) {
    uint64_t sum = 0;
    for (int i = 0; i < LIMITS; i++)
        sum += ctx->limit_cost[i];
    return sum;
}

// Changes the size of the heap or the printf buffer. Bytes beyond a context's initial size are
// taken at once.
static CUresult resize(struct context *ctx, int limit, size_t value) {
    static const uint64_t free_of_charge[] = {0, 1u << 20, 8u << 20};
    uint64_t least = free_of_charge[limit], was = ctx->limit_cost[limit];
    uint64_t is = value > least ? value - least : 0;
    if (is > (uint64_t)INT64_MAX)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (is > was &&
        !sim_take(drv.sim, drv.me, ctx->phys, (struct sim_delta){.extra = (int64_t)(is - was)}))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (is < was)
        sim_give(drv.sim, drv.me, ctx->phys, (struct sim_delta){.extra = (int64_t)(was - is)});
    ctx->limit_cost[limit] = is;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSetLimit(int limit, size_t value) {
    enum { STACK_SIZE = 0, PRINTF_FIFO_SIZE = 1, MALLOC_HEAP_SIZE = 2, FIRST_STACK = 1024 };
    ENTER_CTX(ctx);
    CUresult rc = CUDA_SUCCESS;
    if (limit < 0 || limit >= LIMITS)
        return CUDA_ERROR_INVALID_VALUE;
    if (limit == STACK_SIZE && value > FIRST_STACK)
        rc = launch_local(ctx, value);
    pthread_mutex_lock(&drv.lock);
    if (limit == PRINTF_FIFO_SIZE || limit == MALLOC_HEAP_SIZE)
        rc = ctx_lives(ctx) ? resize(ctx, limit, value) : CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (!rc)
        ctx->limits[limit] = value;
    pthread_mutex_unlock(&drv.lock);
    return rc;
}

EXPORT CUresult cuCtxSynchronize(void) {
    ENTER_CTX(ctx);
    CUresult unsafe = capture_unsafe();
    if (unsafe)
        return unsafe;
    queue_sync_context(ctx);
    pool_sync_point(ctx->phys);
    return dev_lost(ctx->phys);
}

// Synchronises any context; since 13.0.
EXPORT CUresult cuCtxSynchronize_v2(CUcontext handle) {
    ENTER();
    CUresult unsafe = capture_unsafe();
    if (unsafe)
        return unsafe;
    pthread_mutex_lock(&drv.lock);
    struct context *ctx = ctx_by_handle(handle);
    pthread_mutex_unlock(&drv.lock);
    if (!ctx)
        return CUDA_ERROR_INVALID_CONTEXT;
    queue_sync_context(ctx);
    pool_sync_point(ctx->phys);
    return dev_lost(ctx->phys);
}

// Does nothing, because no profiler is attached.
EXPORT CUresult cuProfilerStart(void) {
    ENTER_CTX(ctx);
    (void)ctx;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuProfilerStop(void) {
    ENTER_CTX(ctx);
    (void)ctx;
    return CUDA_SUCCESS;
}
