// SPDX-License-Identifier: Apache-2.0
//
// Contexts: each thread has a stack of contexts, and primary contexts count their retains. A
// context costs device memory. Destroying a context frees everything that lived in it.

#include "driver.h"

#include <stdlib.h>

enum { STACK_MAX = 128 };

// The stack has handles, because another thread may destroy a context that is on it.
static _Thread_local struct {
    CUcontext ctx[STACK_MAX];
    int depth;
} stack;

static CUcontext top(void) {
    return stack.depth ? stack.ctx[stack.depth - 1] : 0;
}

struct context *ctx_by_handle(CUcontext handle) {
    return handle_get(HANDLE_CONTEXT, handle);
}

bool ctx_lives(const struct context *c) {
    return ctx_by_handle(c->handle) == c;
}

CUresult ctx_current(struct context **out) {
    if (!top())
        return CUDA_ERROR_INVALID_CONTEXT;
    pthread_mutex_lock(&drv.lock);
    struct context *c = ctx_by_handle(top());
    pthread_mutex_unlock(&drv.lock);
    if (!c)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *out = c;
    return dev_lost(c->phys);
}

static CUresult push(CUcontext handle) {
    if (stack.depth == STACK_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    stack.ctx[stack.depth++] = handle;
    return CUDA_SUCCESS;
}

static struct sim_delta cost(void) {
    return (struct sim_delta){.extra = (int64_t)drv.sim->config.context_bytes, .contexts = 1};
}

// Makes a context, which does not become current, under a new handle or under the handle `again`.
// drv.lock is held.
static CUresult create_locked(CUdevice dev, unsigned flags, unsigned version, CUcontext again,
                              struct context **out) {
    int phys = drv.phys[dev];
    CUresult rc = dev_lost(phys);
    if (rc)
        return rc;
    if (!sim_take(drv.sim, drv.me, phys, cost()))
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct context *c = calloc(1, sizeof *c);
    *c = (struct context){.dev = dev, .phys = phys, .flags = flags, .version = version, .uses = 1};
    c->limits[0] = 1024;    // CU_LIMIT_STACK_SIZE
    c->limits[1] = 1048576; // CU_LIMIT_PRINTF_FIFO_SIZE
    c->limits[2] = 8388608; // CU_LIMIT_MALLOC_HEAP_SIZE
    c->limits[3] = 2;       // CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH
    c->limits[4] = 2048;    // CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT
    c->limits[5] = 64;      // CU_LIMIT_MAX_L2_FETCH_GRANULARITY
    c->limits[6] = 0;       // CU_LIMIT_PERSISTING_L2_CACHE_SIZE
    c->handle = again ? again : handle_new(HANDLE_CONTEXT, c);
    if (again)
        handle_restore(HANDLE_CONTEXT, again, c);
    c->id = ++drv.next_id;
    queue_attach_context(c);
    *out = c;
    return CUDA_SUCCESS;
}

// Waits for the context's work, then removes the context. The struct stays, because a thread that
// has just looked it up may still read it, as in a real driver.
static void destroy(struct context *c) {
    queue_sync_context(c);
    pthread_mutex_lock(&drv.lock);
    mem_release_context(c);
    green_context_gone(c);
    peer_context_gone(c);
    queue_detach_context(c);
    uint64_t grown = c->local + limits_cost(c);
    handle_end(HANDLE_CONTEXT, c->handle);
    if (!c->primary) // a primary context keeps its handle
        handle_recycle(c->handle);
    pthread_mutex_unlock(&drv.lock);
    struct sim_delta all = cost();
    all.extra += (int64_t)grown;
    sim_give(drv.sim, drv.me, c->phys, all);
}

static CUresult create(CUcontext *out, unsigned flags, CUdevice dev, unsigned version) {
    if (!out || (flags & ~0x3fu))
        return CUDA_ERROR_INVALID_VALUE;
    if (!dev_valid(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    struct context *c = NULL;
    pthread_mutex_lock(&drv.lock);
    CUresult rc = create_locked(dev, flags, version, 0, &c);
    pthread_mutex_unlock(&drv.lock);
    if (rc)
        return rc;
    rc = push(c->handle);
    if (rc) {
        destroy(c);
        return rc;
    }
    *out = c->handle;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxCreate(CUcontext *out, unsigned flags, CUdevice dev) {
    ENTER();
    return create(out, flags, dev, 3010);
}

EXPORT CUresult cuCtxCreate_v2(CUcontext *out, unsigned flags, CUdevice dev) {
    ENTER();
    return create(out, flags, dev, 3020);
}

EXPORT CUresult cuCtxCreate_v3(CUcontext *out, const void *affinity, int n, unsigned flags,
                               CUdevice dev) {
    ENTER();
    if (n < 0 || (n > 0 && !affinity))
        return CUDA_ERROR_INVALID_VALUE;
    if (n > 0)
        return CUDA_ERROR_NOT_SUPPORTED; // execution affinity is an ability of MPS
    return create(out, flags, dev, 3020);
}

EXPORT CUresult cuCtxCreate_v4(CUcontext *out, const void *params, unsigned flags, CUdevice dev) {
    ENTER();
    if (params)
        return CUDA_ERROR_NOT_SUPPORTED;
    return create(out, flags, dev, 3020);
}

// A context for a graphics API is like other contexts: sharing with that API is not simulated.
EXPORT CUresult cuGLCtxCreate(CUcontext *out, unsigned flags, CUdevice dev) {
    ENTER();
    return create(out, flags, dev, 3010);
}

EXPORT CUresult cuGLCtxCreate_v2(CUcontext *out, unsigned flags, CUdevice dev) {
    ENTER();
    return create(out, flags, dev, 3020);
}

typedef int vdp_get_proc_address(uint32_t device, uint32_t function, void **pointer);

// Only the VDPAU library can check its device.
static CUresult create_vdpau(CUcontext *out, unsigned flags, CUdevice dev, uint32_t vdpau,
                             vdp_get_proc_address *look_up, unsigned version) {
    enum { GET_API_VERSION = 2 };
    void *found = NULL;
    if (!look_up || look_up(vdpau, GET_API_VERSION, &found) != 0 || !found)
        return CUDA_ERROR_INVALID_VALUE;
    return create(out, flags, dev, version);
}

EXPORT CUresult cuVDPAUCtxCreate(CUcontext *out, unsigned flags, CUdevice dev, uint32_t vdpau,
                                 vdp_get_proc_address *look_up) {
    ENTER();
    return create_vdpau(out, flags, dev, vdpau, look_up, 3010);
}

EXPORT CUresult cuVDPAUCtxCreate_v2(CUcontext *out, unsigned flags, CUdevice dev, uint32_t vdpau,
                                    vdp_get_proc_address *look_up) {
    ENTER();
    return create_vdpau(out, flags, dev, vdpau, look_up, 3020);
}

static CUresult destroy_handle(CUcontext handle) {
    pthread_mutex_lock(&drv.lock);
    struct context *c = ctx_by_handle(handle);
    pthread_mutex_unlock(&drv.lock);
    if (!c)
        return handle ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_VALUE;
    if (c->primary)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (top() == handle)
        stack.depth--;
    destroy(c);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxDestroy(CUcontext ctx) {
    ENTER();
    return destroy_handle(ctx);
}

EXPORT CUresult cuCtxDestroy_v2(CUcontext ctx) {
    ENTER();
    return destroy_handle(ctx);
}

static CUresult push_current(CUcontext ctx) {
    if (!ctx)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&drv.lock);
    bool known = ctx_by_handle(ctx) != NULL;
    pthread_mutex_unlock(&drv.lock);
    return known ? push(ctx) : CUDA_ERROR_INVALID_CONTEXT;
}

EXPORT CUresult cuCtxPushCurrent(CUcontext ctx) {
    ENTER();
    return push_current(ctx);
}

EXPORT CUresult cuCtxPushCurrent_v2(CUcontext ctx) {
    ENTER();
    return push_current(ctx);
}

static CUresult pop_current(CUcontext *out) {
    if (!stack.depth)
        return CUDA_ERROR_INVALID_CONTEXT;
    CUcontext handle = stack.ctx[--stack.depth];
    if (out)
        *out = handle;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxPopCurrent(CUcontext *out) {
    ENTER();
    return pop_current(out);
}

EXPORT CUresult cuCtxPopCurrent_v2(CUcontext *out) {
    ENTER();
    return pop_current(out);
}

EXPORT CUresult cuCtxSetCurrent(CUcontext ctx) {
    ENTER();
    if (!ctx) {
        if (stack.depth)
            stack.depth--;
        return CUDA_SUCCESS;
    }
    pthread_mutex_lock(&drv.lock);
    bool known = ctx_by_handle(ctx) != NULL;
    pthread_mutex_unlock(&drv.lock);
    if (!known)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!stack.depth)
        return push(ctx);
    stack.ctx[stack.depth - 1] = ctx;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetCurrent(CUcontext *out) {
    ENTER();
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = top();
    return CUDA_SUCCESS;
}

// The oldest interface: a count of uses on a context that exists. Deprecated since 4.0.
EXPORT CUresult cuCtxAttach(CUcontext *out, unsigned flags) {
    ENTER_CTX(ctx);
    if (!out || flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (ctx->primary)
        return CUDA_ERROR_INVALID_CONTEXT;
    pthread_mutex_lock(&drv.lock);
    ctx->uses++;
    *out = ctx->handle;
    pthread_mutex_unlock(&drv.lock);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxDetach(CUcontext handle) {
    ENTER_CTX(ctx);
    if (ctx->primary || handle != ctx->handle)
        return CUDA_ERROR_INVALID_CONTEXT;
    pthread_mutex_lock(&drv.lock);
    unsigned left = --ctx->uses;
    pthread_mutex_unlock(&drv.lock);
    return left ? CUDA_SUCCESS : destroy_handle(handle);
}

// drv.lock is held.
static CUresult primary_locked(CUdevice dev) {
    struct primary *p = &drv.primary[dev];
    if (p->ctx)
        return CUDA_SUCCESS;
    CUresult rc = create_locked(dev, p->flags, 3020, p->handle, &p->ctx);
    if (!rc) {
        p->ctx->primary = true;
        p->handle = p->ctx->handle;
    }
    return rc;
}

CUresult primary_retain(CUdevice dev, struct context **out) {
    pthread_mutex_lock(&drv.lock);
    CUresult rc = primary_locked(dev);
    if (!rc) {
        drv.primary[dev].refs++;
        *out = drv.primary[dev].ctx;
    }
    pthread_mutex_unlock(&drv.lock);
    return rc;
}

CUresult primary_of_runtime(CUdevice dev, CUcontext *out) {
    struct primary *p = &drv.primary[dev];
    pthread_mutex_lock(&drv.lock);
    CUresult rc = primary_locked(dev);
    if (!rc) {
        p->refs += !p->runtime;
        p->runtime = true;
        *out = p->handle;
    }
    pthread_mutex_unlock(&drv.lock);
    return rc;
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice dev) {
    ENTER();
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    if (!dev_valid(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    struct context *ctx;
    CUresult rc = primary_retain(dev, &ctx);
    if (!rc)
        *out = ctx->handle;
    return rc;
}

// Releases or resets a primary context. After a reset the program must still release its retains.
static CUresult primary_end(CUdevice dev, bool reset) {
    if (!dev_valid(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    struct primary *p = &drv.primary[dev];
    struct context *dead = NULL;
    CUresult rc = CUDA_SUCCESS;
    pthread_mutex_lock(&drv.lock);
    if (reset) {
        dead = p->ctx;
    } else if (!p->refs) {
        rc = CUDA_ERROR_INVALID_CONTEXT;
    } else if (--p->refs == 0) {
        dead = p->ctx;
    }
    if (dead)
        p->ctx = NULL;
    if (p->refs == 0)
        p->runtime = false;
    pthread_mutex_unlock(&drv.lock);
    if (dead) {
        storage_end(p->handle);
        destroy(dead);
    }
    return rc;
}

CUresult primary_leave(CUdevice dev) {
    return primary_end(dev, false);
}

EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice dev) {
    ENTER();
    return primary_end(dev, false);
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
    ENTER();
    return primary_end(dev, false);
}

EXPORT CUresult cuDevicePrimaryCtxReset(CUdevice dev) {
    ENTER();
    return primary_end(dev, true);
}

EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev) {
    ENTER();
    return primary_end(dev, true);
}

static CUresult primary_flags(CUdevice dev, unsigned flags, bool strict) {
    if (!dev_valid(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    if (flags & ~0x3fu)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult rc = CUDA_SUCCESS;
    pthread_mutex_lock(&drv.lock);
    struct primary *p = &drv.primary[dev];
    if (p->ctx && strict && flags != p->flags) {
        rc = CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE;
    } else {
        p->flags = flags;
        if (p->ctx)
            p->ctx->flags = flags;
    }
    pthread_mutex_unlock(&drv.lock);
    return rc;
}

EXPORT CUresult cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned flags) {
    ENTER();
    return primary_flags(dev, flags, true);
}

EXPORT CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned flags) {
    ENTER();
    return primary_flags(dev, flags, false);
}

EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned *flags, int *active) {
    ENTER();
    if (!flags || !active)
        return CUDA_ERROR_INVALID_VALUE;
    if (!dev_valid(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    pthread_mutex_lock(&drv.lock);
    *flags = drv.primary[dev].flags;
    *active = drv.primary[dev].ctx != NULL;
    pthread_mutex_unlock(&drv.lock);
    return CUDA_SUCCESS;
}
