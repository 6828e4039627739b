// SPDX-License-Identifier: Apache-2.0
//
// Green contexts: each is a part of a device's processors, and retains the primary context. It
// costs as much as a context. The context made from it is a second name of the primary context, to
// which memory belongs.

#include "driver.h"

#include <stdlib.h>
#include <string.h>

enum { SM_COUNT = 84, SM_STEP = 2, RESOURCE_SM = 1, GREEN_DEFAULT_STREAM = 1 };

struct resource {
    int type;
    unsigned char padding[92];
    unsigned sm_count;
    unsigned char more[44];
};

struct description {
    unsigned sm_count;
};

struct green {
    CUgreenCtx handle;
    CUdevice dev;
    struct context *ctx;
    CUcontext converted; // 0: not yet
    unsigned sm_count;
    struct green *next;
};

static struct green *greens; // under drv.lock

static struct sim_delta cost(void) {
    return (struct sim_delta){.extra = (int64_t)drv.sim->config.context_bytes, .contexts = 1};
}

static void fill(struct resource *out, unsigned sm_count) {
    memset(out, 0, sizeof *out);
    out->type = RESOURCE_SM;
    out->sm_count = sm_count;
}

EXPORT CUresult cuDeviceGetDevResource(CUdevice dev, struct resource *out, int type) {
    ENTER();
    if (!out || type != RESOURCE_SM)
        return CUDA_ERROR_INVALID_VALUE;
    if (!dev_valid(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    fill(out, SM_COUNT);
    return CUDA_SUCCESS;
}

// Splits processors into groups of min_count, rounded up; at most the wanted number of groups.
EXPORT CUresult cuDevSmResourceSplitByCount(struct resource *result, unsigned *groups,
                                            const struct resource *input, struct resource *rest,
                                            unsigned flags, unsigned min_count) {
    ENTER();
    if (!groups || !input || input->type != RESOURCE_SM || flags)
        return CUDA_ERROR_INVALID_VALUE;
    unsigned each = min_count ? (min_count + SM_STEP - 1) / SM_STEP * SM_STEP : SM_STEP;
    unsigned n = input->sm_count / each;
    if (result && *groups < n)
        n = *groups;
    if (n == 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; result && i < n; i++)
        fill(&result[i], each);
    if (rest)
        fill(rest, input->sm_count - n * each);
    *groups = n;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDevResourceGenerateDesc(struct description **out, const struct resource *all,
                                          unsigned n) {
    ENTER();
    if (!out || !all || n != 1 || all->type != RESOURCE_SM || !all->sm_count)
        return CUDA_ERROR_INVALID_VALUE;
    *out = malloc(sizeof **out); // no call frees a description
    if (!*out)
        return CUDA_ERROR_OUT_OF_MEMORY;
    (*out)->sm_count = all->sm_count;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGreenCtxCreate(CUgreenCtx *out, const struct description *what, CUdevice dev,
                                 unsigned flags) {
    ENTER();
    if (!out || !what || flags != GREEN_DEFAULT_STREAM)
        return CUDA_ERROR_INVALID_VALUE;
    if (!dev_valid(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    struct green *g = calloc(1, sizeof *g);
    if (!g)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult rc = primary_retain(dev, &g->ctx);
    if (!rc && !sim_take(drv.sim, drv.me, drv.phys[dev], cost())) {
        primary_leave(dev);
        rc = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (rc) {
        free(g);
        return rc;
    }
    g->dev = dev;
    g->sm_count = what->sm_count;
    pthread_mutex_lock(&drv.lock);
    g->handle = *out = handle_new(HANDLE_GREEN, g);
    g->next = greens;
    greens = g;
    pthread_mutex_unlock(&drv.lock);
    return CUDA_SUCCESS;
}

void green_context_gone(const struct context *ctx) {
    for (struct green *g = greens; g; g = g->next)
        if (g->ctx == ctx && g->converted) {
            handle_drop(HANDLE_CONTEXT, g->converted);
            g->converted = 0;
        }
}

static void detach(struct stream *s, void *green) {
    if (s->green == (CUgreenCtx)(uintptr_t)green)
        s->detached = true;
}

EXPORT CUresult cuGreenCtxDestroy(CUgreenCtx handle) {
    ENTER();
    pthread_mutex_lock(&drv.lock);
    struct green *g = handle_get(HANDLE_GREEN, handle);
    for (struct green **at = &greens; g && *at; at = &(*at)->next)
        if (*at == g) {
            *at = g->next;
            break;
        }
    if (g) {
        handle_drop(HANDLE_GREEN, handle);
        if (g->converted)
            handle_drop(HANDLE_CONTEXT, g->converted);
    }
    pthread_mutex_unlock(&drv.lock);
    if (!g)
        return CUDA_ERROR_INVALID_CONTEXT;
    // The green context's streams stay, and can only be destroyed.
    queue_each(g->ctx, detach, (void *)(uintptr_t)handle);
    sim_give(drv.sim, drv.me, drv.phys[g->dev], cost());
    primary_leave(g->dev);
    free(g);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxFromGreenCtx(CUcontext *out, CUgreenCtx handle) {
    ENTER();
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&drv.lock);
    struct green *g = handle_get(HANDLE_GREEN, handle);
    bool lives = g && ctx_by_handle(g->ctx->handle) == g->ctx;
    if (lives && !g->converted)
        g->converted = handle_new(HANDLE_CONTEXT, g->ctx);
    if (lives)
        *out = g->converted;
    pthread_mutex_unlock(&drv.lock);
    return lives ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

EXPORT CUresult cuGreenCtxStreamCreate(CUstream *out, CUgreenCtx handle, unsigned flags,
                                       int priority) {
    ENTER();
    if (!out || flags != CU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&drv.lock);
    struct green *g = handle_get(HANDLE_GREEN, handle);
    struct context *ctx = g && ctx_by_handle(g->ctx->handle) == g->ctx ? g->ctx : NULL;
    pthread_mutex_unlock(&drv.lock);
    return ctx ? stream_create(ctx, out, flags, priority, handle) : CUDA_ERROR_INVALID_CONTEXT;
}
