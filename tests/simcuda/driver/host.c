// SPDX-License-Identifier: Apache-2.0
//
// Host memory that the driver has page-locked, or that the program has registered.

#include "driver.h"

#include <stdlib.h>

struct registration {
    CUcontext ctx; // context with which it ends
    CUdeviceptr base;
    uint64_t size;
    unsigned flags;
    struct registration *next;
};

static struct registration *registered; // under drv.lock

void host_count(int64_t bytes) {
    atomic_fetch_add(&drv.me->host, (uint64_t)bytes);
}

// Removes the registration that *at points to.
static void unregister_locked(struct registration **at) {
    struct registration *r = *at;
    *at = r->next;
    host_count(-(int64_t)r->size);
    free(r);
}

void host_release_context(const struct context *ctx) {
    for (struct registration **at = &registered; *at;)
        if ((*at)->ctx == ctx->handle)
            unregister_locked(at);
        else
            at = &(*at)->next;
}

bool host_registered(CUdeviceptr p, uint64_t size) {
    for (struct registration *r = registered; r; r = r->next)
        if (p >= r->base && p - r->base < r->size && size <= r->size - (p - r->base))
            return true;
    return false;
}

static CUresult host_alloc(struct context *ctx, void **out, uint64_t size, unsigned flags) {
    if (!out || (flags & ~7u))
        return CUDA_ERROR_INVALID_VALUE;
    if (!size) { // 0 bytes: succeeds
        *out = NULL;
        return CUDA_SUCCESS;
    }
    pthread_mutex_lock(&drv.lock);
    bool lives = ctx_lives(ctx);
    struct block *b = lives ? block_new(size) : NULL;
    if (b) {
        b->ctx = ctx->handle;
        b->phys = ctx->phys;
        b->kind = BLOCK_HOST;
        b->host_flags = flags;
        host_count((int64_t)size);
        *out = (void *)(uintptr_t)b->base;
    }
    pthread_mutex_unlock(&drv.lock);
    if (!lives)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return b ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

EXPORT CUresult cuMemHostAlloc(void **out, size_t size, unsigned flags) {
    ENTER_CTX(ctx);
    return host_alloc(ctx, out, size, flags);
}

EXPORT CUresult cuMemAllocHost_v2(void **out, size_t size) {
    ENTER_CTX(ctx);
    return host_alloc(ctx, out, size, 0);
}

EXPORT CUresult cuMemAllocHost(void **out, unsigned size) {
    ENTER_CTX(ctx);
    return host_alloc(ctx, out, size, 0);
}

EXPORT CUresult cuMemFreeHost(void *p) {
    ENTER();
    return mem_free((CUdeviceptr)(uintptr_t)p, true);
}

static CUresult host_register(const struct context *ctx, void *p, uint64_t size, unsigned flags) {
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)p;
    if (!p || !size || (flags & ~15u))
        return CUDA_ERROR_INVALID_VALUE;
    struct registration *r = malloc(sizeof *r);
    if (!r)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult rc = CUDA_SUCCESS;
    pthread_mutex_lock(&drv.lock);
    for (struct registration *o = registered; o && !rc; o = o->next)
        if (at < o->base + o->size && o->base < at + size)
            rc = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    if (!rc) {
        *r = (struct registration){ctx->handle, at, size, flags, registered};
        registered = r;
        host_count((int64_t)size);
    }
    pthread_mutex_unlock(&drv.lock);
    if (rc)
        free(r);
    return rc;
}

EXPORT CUresult cuMemHostRegister_v2(void *p, size_t size, unsigned flags) {
    ENTER_CTX(ctx);
    return host_register(ctx, p, size, flags);
}

EXPORT CUresult cuMemHostRegister(void *p, size_t size, unsigned flags) {
    ENTER_CTX(ctx);
    return host_register(ctx, p, size, flags);
}

EXPORT CUresult cuMemHostUnregister(void *p) {
    ENTER_CTX(ctx);
    queue_sync_context(ctx);
    CUresult rc = CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    if (!p)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&drv.lock);
    for (struct registration **q = &registered; *q; q = &(*q)->next)
        if ((*q)->base == (CUdeviceptr)(uintptr_t)p) {
            unregister_locked(q);
            rc = CUDA_SUCCESS;
            break;
        }
    pthread_mutex_unlock(&drv.lock);
    return rc;
}

static bool host_known(CUdeviceptr p, unsigned *flags) {
    struct block *b = block_find(p);
    if (b && b->kind == BLOCK_HOST) {
        *flags = b->host_flags;
        return true;
    }
    for (struct registration *r = registered; r; r = r->next)
        if (p >= r->base && p - r->base < r->size) {
            *flags = r->flags;
            return true;
        }
    return false;
}

EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *out, void *p, unsigned flags) {
    ENTER_CTX(ctx);
    (void)ctx;
    unsigned known_flags;
    if (!out || flags)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&drv.lock);
    bool known = host_known((CUdeviceptr)(uintptr_t)p, &known_flags);
    pthread_mutex_unlock(&drv.lock);
    if (known)
        *out = (CUdeviceptr)(uintptr_t)p;
    return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
