// SPDX-License-Identifier: Apache-2.0
//
// Launches of kernels that do nothing. A launch takes local memory for all threads that can be
// resident at the same time. The context keeps that memory until it ends.

#include "module.h"

enum { RESIDENT_THREADS = 65536 }; // threads of a context that have local memory at the same time

// Takes local memory for each thread: the larger of the kernel's need and the stack limit.
static CUresult grow_locked(struct context *ctx, uint64_t local) {
    uint64_t bytes;
    if (__builtin_mul_overflow(local, (uint64_t)RESIDENT_THREADS, &bytes) ||
        bytes > (uint64_t)INT64_MAX)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (bytes <= ctx->local)
        return CUDA_SUCCESS;
    if (!sim_take(drv.sim, drv.me, ctx->phys,
                  (struct sim_delta){.extra = (int64_t)(bytes - ctx->local)}))
        return CUDA_ERROR_OUT_OF_MEMORY;
    ctx->local = bytes;
    return CUDA_SUCCESS;
}

CUresult launch_local(struct context *ctx, uint64_t local) {
    pthread_mutex_lock(&drv.lock);
    CUresult rc = ctx_lives(ctx) ? grow_locked(ctx, local) : CUDA_ERROR_CONTEXT_IS_DESTROYED;
    pthread_mutex_unlock(&drv.lock);
    return rc;
}

static void nothing(void *arg) {
    (void)arg;
}

static CUresult launch(struct context *ctx, uintptr_t function, uint64_t threads, CUstream s) {
    pthread_mutex_lock(&drv.lock);
    struct function *f = handle_get(HANDLE_FUNCTION, function);
    bool here = f && f->module->ctx == ctx->handle;
    CUresult rc = here ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    if (!rc && !threads)
        rc = CUDA_ERROR_INVALID_VALUE;
    if (!rc && grow_locked(ctx, f->local))
        rc = CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    pthread_mutex_unlock(&drv.lock);
    return rc ? rc : queue_run(ctx, s, nothing, NULL, 0, false);
}

#define GRID                                                                                       \
    unsigned gridX, unsigned gridY, unsigned gridZ, unsigned blockX, unsigned blockY,              \
        unsigned blockZ
#define THREADS (gridX && gridY && gridZ ? (uint64_t)blockX * blockY * blockZ : 0)

BOTH(cuLaunchKernel, _ptsz,
     (uintptr_t f, GRID, unsigned shared, CUstream hStream, void **parameters, void **extra),
     ((void)shared, (void)parameters, (void)extra, launch(ctx, f, THREADS, s)))
